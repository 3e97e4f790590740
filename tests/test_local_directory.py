"""Local locks: where they lie, whose that is, who shares it, and file systems that cannot lock."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contenders import Contender, directory, environment, take, try_once
from distlock.backends import local as local_module
from distlock.backends.base import ConfigurationError, DistlockError, Refused
from distlock.backends.local import LocalBackend
from distlock.backends.local_directory import check_directory, file_system, percent_decoded

USER = ("--identity", "4321", "4321")
MEMBERS = (("--identity", "4321", "4321", "5000"), ("--identity", "4322", "4322", "5000"))


def of(path: Path) -> LocalBackend:
    return LocalBackend.from_url(f"local://{path}", environment())


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_default_is_in_the_state_directory_and_made_on_use(tmp_path: Path) -> None:
    backend = LocalBackend.from_url("local:", environment(tmp_path / "state"))
    assert list(backend.locks(5.0)) == []
    assert not backend.inspect("n", 5.0).held
    assert not (tmp_path / "state").exists()
    take(backend, "n")
    assert [path.suffix for path in (tmp_path / "state" / "locks").iterdir() if path.suffix == ".lock"] == [".lock"]
    backend.close()


def test_the_path_is_percent_decoded(tmp_path: Path) -> None:
    backend = LocalBackend.from_url(f"local://{tmp_path}/a%20b%2Fc%3F%25/%E9", environment())
    take(backend, "n")
    backend.close()
    (made,) = (tmp_path / "a b" / "c?%").iterdir()
    assert os.fsencode(made.name) == b"\xe9"


@pytest.mark.parametrize(
    "url",
    [
        "local:foo",
        "local:/var/lib",
        "local://host/x",
        "local://",
        "local:///",
        "local:///x?y=1",
        "local:///x#y",
        "local:?x",
        "local:///x%",
        "local:///x%zz",
        "local:///x%2",
        "local:///x%00y",
        "local:///x% 4",
    ],
)
def test_other_urls_are_refused_by_name(url: str) -> None:
    with pytest.raises(ConfigurationError, match=r"local:///DIRECTORY") as caught:
        LocalBackend.from_url(url, environment())
    assert repr(url) in str(caught.value)


@given(st.binary(min_size=1, max_size=30).map(lambda raw: raw.replace(b"\0", b"0")))
def test_every_path_can_be_written_in_a_url(raw: bytes) -> None:
    assert os.fsencode(percent_decoded("".join(f"%{byte:02x}" for byte in raw))) == raw


@pytest.mark.parametrize("umask", [0o000, 0o077, 0o777])
def test_what_is_made_is_private_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    tmp_path.chmod(0o755)
    folder = tmp_path / "a" / "b"
    with Contender(f"local://{folder}", "n", f"--umask={umask:o}") as holder:
        holder.granted()
        assert [mode(path) for path in (folder.parent, folder)] == [0o700, 0o700]
        assert {mode(path) for path in folder.iterdir()} == {0o700}
        assert {mode(path) for path in folder.glob("*/*")} == {0o600}
        holder.tell("release")
        holder.expect("released")
        assert [mode(path) for path in folder.glob("*/*")] == [0o600, 0o600]


@pytest.mark.parametrize("umask", ["000", "077"])
def test_a_group_shares_its_directory(umask: str) -> None:
    with directory(0o2770, gid=5000) as folder:
        url = f"local://{folder}"
        with (
            Contender(url, "n", *MEMBERS[0], f"--umask={umask}") as first,
            Contender(url, "n", *MEMBERS[1], f"--umask={umask}") as second,
        ):
            first.granted()
            second.expect("waiting")
            (state,) = of(folder).locks(5.0)
            assert [state.holder and state.holder.owner, state.waiters[0].owner] == [first.owner, second.owner]
            first.tell("release")
            second.granted(1.0)
            assert [(mode(path), path.stat().st_gid) for path in folder.iterdir()] == [(0o2770, 5000)]
            for path in folder.glob("*/*"):
                assert (mode(path), path.stat().st_gid) == (0o660, 5000)
            assert try_once(of(folder), "n") is None
            second.tell("release")
            second.expect("released")


def test_root_makes_files_that_the_group_can_use() -> None:
    """Also where the directory does not hand its group down."""
    with directory(0o770, uid=4321, gid=5000) as folder:
        backend = of(folder)
        backend.release(take(backend, "n"), 5.0)
        assert [(mode(path), path.stat().st_gid) for path in folder.iterdir()] == [(0o2770, 5000)]
        for path in folder.glob("*/*"):
            assert (mode(path), path.stat().st_gid) == (0o660, 5000)
        with Contender(f"local://{folder}", "n", "--identity", "4322", "5000") as member:
            member.granted()


def test_a_group_directory_that_does_not_hand_its_group_down_is_refused() -> None:
    with directory(0o770, gid=5000) as folder, Contender(f"local://{folder}", "n", *MEMBERS[0]) as member:
        message, _ = member.expect("failed")
        assert message.startswith("ConfigurationError: ")
        assert f"chmod g+s {folder}" in message
        assert list(folder.iterdir()) == []


def test_a_directory_that_everybody_may_write_is_refused() -> None:
    for writable in (0o777, 0o1777, 0o702):
        with directory(writable) as folder:
            with pytest.raises(ConfigurationError, match=rf"chmod o-w {folder}"):
                take(of(folder), "n")
            with pytest.raises(ConfigurationError):
                of(folder).inspect("n", 5.0)


def test_a_strangers_directory_is_refused_to_root() -> None:
    with directory(0o755, uid=4321) as folder:
        for use in (lambda: take(of(folder), "n"), lambda: list(of(folder).locks(5.0))):
            with pytest.raises(Refused, match=rf"{folder} belongs to uid 4321, we are uid 0"):
                use()


@pytest.mark.parametrize(("owner", "bits"), [(4322, 0o755), (0, 0o755), (0, 0o700), (4321, 0o500)])
def test_a_directory_that_a_user_may_not_write_is_refused(owner: int, bits: int) -> None:
    with directory(bits, uid=owner) as folder, Contender(f"local://{folder}", "n", *USER) as user:
        message, _ = user.expect("failed")
        assert message.startswith("Refused: ")
        assert "4321" in message
        assert str(folder) in message
        assert owner == 4321 or f"uid {owner}" in message


@pytest.mark.parametrize(("file", "bits"), [(".", 0o700), (".", 0o750), ("lock.db", 0o600), ("queue", 0o640)])
def test_a_file_that_a_user_may_not_write_is_refused(file: str, bits: int) -> None:
    with directory(0o2770, gid=5000) as folder:
        backend = of(folder)
        backend.release(take(backend, "n"), 5.0)
        (lock,) = folder.iterdir()
        (lock / file).chmod(bits)
        with Contender(f"local://{folder}", "n", *MEMBERS[0]) as member:
            message, _ = member.expect("failed")
        assert message.startswith(f"Refused: {lock}")
        assert ": permission denied for uid 4321; " in message
        assert message.endswith(" belongs to uid 0")


def test_a_directory_that_lost_its_write_permission_is_refused() -> None:
    """The database exists and can be written; its log cannot be made."""
    with directory(0o700, uid=4321) as folder:
        with Contender(f"local://{folder}", "n", *USER) as user:
            user.granted()
            user.tell("release")
            user.expect("released")
        (lock,) = folder.iterdir()
        lock.chmod(0o500)
        with Contender(f"local://{folder}", "n", *USER) as user:
            message, _ = user.expect("failed")
    assert message == f"Refused: {lock}: permission denied for uid 4321"


def test_no_directory_is_a_configuration_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match="not a directory"):
        take(of(tmp_path / "file"), "n")
    with pytest.raises(DistlockError, match="Not a directory"):
        take(of(tmp_path / "file" / "below"), "n")


MOUNTS = r"""22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
23 22 0:21 / /proc rw - proc proc rw
40 22 0:50 / /mnt/share rw,relatime shared:7 master:1 - TYPE server:/export rw,vers=4.2
41 40 0:51 / /mnt/share/local rw - tmpfs tmpfs rw
42 22 0:52 / /mnt/with\040blank\134 rw - TYPE server:/b rw
43 22 0:53 / /mnt/stacked rw - TYPE server:/c rw
44 43 0:54 / /mnt/stacked rw - xfs /dev/vdb rw
"""


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/", "ext4"),
        ("/mnt", "ext4"),
        ("/mnt/share", "TYPE"),
        ("/mnt/share/a/b", "TYPE"),
        ("/mnt/shared", "ext4"),
        ("/mnt/share/local/x", "tmpfs"),
        ("/mnt/with blank\\/x", "TYPE"),
        ("/mnt/stacked/x", "xfs"),
    ],
)
def test_the_longest_mount_point_tells_the_file_system(path: str, expected: str) -> None:
    assert file_system(Path(path), MOUNTS) == expected


NETWORK = (
    "nfs nfs4 cifs smb3 smbfs 9p afs ceph glusterfs lustre gfs2 ocfs2 beegfs gpfs virtiofs coda ncpfs orangefs"
    " fuse fuse.sshfs fuse.glusterfs fuse.s3fs"
)


@pytest.mark.parametrize("kind", NETWORK.split())
def test_network_file_systems_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    monkeypatch.setattr(local_module, "_mountinfo", lambda: f"1 0 0:1 / {tmp_path} rw - {kind} server:/x rw")
    for use in (lambda b: take(b, "n"), lambda b: b.inspect("n", 5.0), lambda b: list(b.locks(5.0))):
        with pytest.raises(ConfigurationError, match=rf"network file system \({kind}\)"):
            use(of(tmp_path / "link"))
    assert [path.name for path in tmp_path.iterdir()] == ["link"]


@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs", "zfs", "tmpfs", "overlay", "fuse.fuse-overlayfs", "fuseblk"])
def test_local_file_systems_are_not(tmp_path: Path, kind: str) -> None:
    check_directory(tmp_path, f"1 0 0:1 / / rw - {kind} none rw")
