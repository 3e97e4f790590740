"""Crontab lines as Debian's cron runs them: which of them send mail, and what the command finds.

cron runs in namespaces of its own, with its spool, its folders and the programs of /usr/sbin covered: nothing of the
host's crontabs is seen or run, and all ends with the namespace. A sendmail that files mails away takes the place of
the real one. PAM is told to let everything pass: a container may have no audit to tell of logins.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from processes import DISTLOCK, wait_until

START = """
cp /usr/sbin/cron ./crontest
for folder in /usr/sbin /run /etc/cron.d /var/spool/cron /var/lib; do mount -t tmpfs tmpfs $folder; done
cp sendmail /usr/sbin
mount --bind empty /etc/crontab
mount --bind pam /etc/pam.d/cron
mkdir -m 1730 /var/spool/cron/crontabs
cp crontab /var/spool/cron/crontabs/root
chmod 600 /var/spool/cron/crontabs/root
export HOME=/root
{distlock} run busy -- sh -c 'touch held; exec sleep 600' &
{distlock} run --once today done-today -- true
until [ -e held ]; do sleep 0.05; done
env -i ./crontest -f &
wait
"""

SENDMAIL = """#!/bin/sh
cat >{folder}/mails/new.$$
mv {folder}/mails/new.$$ {folder}/mails/mail.$$
"""

RECORD = """#!/bin/sh
env >environment
tty >terminal
pwd >folder
"""

SILENT = {
    "succeeds": "{distlock} run -n free -- true",
    "conflicts": "{distlock} run -n busy -- echo never",
    "is skipped": "{distlock} run -n --once today done-today -- echo never",
    "records": "cd {folder} && {distlock} run -n recorded -- ./record",
}
TELLING = {
    "prints": ("{distlock} run -n printing -- echo printed", "printed"),
    "fails": ("{distlock} run -n failing -- sh -c 'echo broken >&2; exit 3'", "broken"),
    "has no backend": (
        "{distlock} run -n -b redis://127.0.0.1:1 job -- echo never",
        "distlock: 127.0.0.1:1 is not reached",
    ),
    "waits in vain": ("{distlock} run --wait 0.5 busy -- echo never", "distlock: 'busy': not had within 500ms"),
}
CODES = {
    "succeeds": 0,
    "conflicts": 75,
    "is skipped": 0,
    "records": 0,
    "prints": 0,
    "fails": 3,
    "has no backend": 69,
    "waits in vain": 75,
}


@contextmanager
def cron(folder: Path, schedule: str) -> Iterator[None]:
    lines = SILENT | {what: line for what, (line, _) in TELLING.items()}
    (folder / "crontab").write_text(
        "".join(
            f"{schedule} {line.format(distlock=DISTLOCK, folder=folder)}; echo $? >'{folder}/code {what}'\n"
            for what, line in lines.items()
        )
    )
    (folder / "sendmail").write_text(SENDMAIL.format(folder=folder))
    (folder / "record").write_text(RECORD)
    for program in ("sendmail", "record"):
        (folder / program).chmod(0o755)
    (folder / "mails").mkdir()
    (folder / "empty").touch()
    kinds = ("auth", "account", "session")
    (folder / "pam").write_text("".join(f"{kind} required pam_permit.so\n" for kind in kinds))
    namespaces = ["unshare", "--mount", "--pid", "--mount-proc", "--fork", "--kill-child"]
    start = ["setpriv", "--pdeathsig", "KILL", *namespaces, "sh", "-euc", START.format(distlock=DISTLOCK)]
    with (folder / "errors").open("wb") as errors:
        process = subprocess.Popen(start, cwd=folder, stdin=subprocess.DEVNULL, stdout=errors, stderr=errors)
    try:
        yield
    finally:
        process.kill()
        process.wait()
    wait_until(lambda: not processes_of(folder), what="nothing is left of cron")


def processes_of(folder: Path) -> list[int]:
    """Those that run this very cron: the daemon, and a copy of it for each line until its mail is sent."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and os.readlink(entry / "exe").startswith(f"{folder}/"):
                found.append(int(entry.name))
        except OSError:
            continue
    return found


@pytest.mark.parametrize(
    ("schedule", "seconds"),
    [("@reboot", 30), pytest.param("* * * * *", 95, marks=pytest.mark.faults)],
    ids=["at its start", "each minute"],
)
def test_mail_is_sent_when_something_is_wrong_and_only_then(tmp_path: Path, schedule: str, seconds: float) -> None:
    def codes() -> dict[str, int]:
        written = {path.name.removeprefix("code "): path.read_text() for path in tmp_path.glob("code *")}
        return {what: int(text) for what, text in written.items() if text}

    with cron(tmp_path, schedule):
        wait_until(lambda: len(codes()) == len(CODES), seconds, "the end of every line")
        wait_until(lambda: len(processes_of(tmp_path)) == 1, 10, "cron alone")
    assert codes() == CODES, (tmp_path / "errors").read_text()
    mails = {}
    for path in (tmp_path / "mails").iterdir():
        head, _, body = path.read_text().partition("\n\n")
        (what,) = [what for what in CODES if f"code {what}'" in head]
        mails[what] = body
    assert set(mails) == set(TELLING)
    for what, (_, words) in TELLING.items():
        assert words in mails[what]
        assert mails[what].count("\n") == 1
    environment = dict(line.split("=", 1) for line in (tmp_path / "environment").read_text().splitlines())
    assert environment["PATH"] == "/usr/bin:/bin"
    assert environment["DISTLOCK_NAME"] == "recorded"
    assert {"HOME", "LOGNAME", "SHELL"} <= set(environment)
    assert not {"TERM", "LANG", "LC_ALL", "LC_CTYPE"} & set(environment)
    assert (tmp_path / "terminal").read_text() == "not a tty\n"
    assert (tmp_path / "folder").read_text() == f"{tmp_path}\n"
