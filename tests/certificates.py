"""Throw-away certificates, made by openssl(1)."""

from __future__ import annotations

import subprocess
from pathlib import Path


def _openssl(folder: Path, *words: str) -> None:
    subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)


def authority(folder: Path) -> Path:
    """A CA in a folder of its own, which holds its key too. Gives the path of its certificate."""
    folder.mkdir()
    _openssl(
        folder,
        *("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"),
        *("-subj", "/CN=a CA of tests", "-keyout", "ca.key", "-out", "ca.pem"),
    )
    return folder / "ca.pem"


def certificate(ca: Path, name: str, *alternatives: str) -> tuple[Path, Path]:
    """A certificate by this CA, ``alternatives`` as ``IP:127.0.0.1``: its path and that of its key."""
    folder = ca.parent
    (folder / f"{name}.ext").write_text(f"subjectAltName={','.join(alternatives)}\n" if alternatives else "")
    _openssl(
        folder,
        *("req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
        *("-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.csr"),
    )
    _openssl(
        folder,
        *("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2"),
        *("-extfile", f"{name}.ext", "-out", f"{name}.pem"),
    )
    return folder / f"{name}.pem", folder / f"{name}.key"
