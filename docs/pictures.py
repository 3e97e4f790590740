#!/usr/bin/env python3
"""Makes the pictures of README: what the installed commands print at a terminal, from real runs on `local:`.

    .venv/bin/python docs/pictures.py [FOLDER] [status|history|drill]...     half a minute for all

Host and user are nobody's: the runs have a host name and a /etc/passwd of their own, in namespaces (unshare of
util-linux) that end with them.
"""

from __future__ import annotations

import html
import os
import pty
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from termios import TIOCSWINSZ

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.text import Text

HERE = Path(__file__).resolve().parent
HOST, USER = "web-1", "deploy"
WIDTH = 112
CELL = 12.2
"""Width of a character in rich's pictures."""
DISTLOCK = str(Path(sys.executable).parent / "distlock")
HOME = "\x1b[H"
WITHOUT_FONTS = re.sub(r"@font-face \{\{.*?\}\}\s*", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
"""Nothing is loaded from elsewhere: any monospaced font will do."""


def save(folder: Path, name: str, command: str, output: str) -> None:
    lines = [line.rstrip() for line in output.replace("\r", "").rstrip().split("\n")]
    console = Console(record=True, width=WIDTH, file=Path(os.devnull).open("w"), force_terminal=True)  # noqa: SIM115
    console.print(Text(f"$ {command}", style="bold"))
    for line in lines:
        console.print(Text.from_ansi(line), no_wrap=True, overflow="crop", crop=True)
    picture = console.export_svg(title=command, code_format=WITHOUT_FONTS)
    (folder / f"{name}.svg").write_text(re.sub(r"<text [^>]*>[^<]*</text>", word_by_word, picture))


def word_by_word(found: re.Match[str]) -> str:
    """Each word at its own place: not every viewer stretches a line to its length, or keeps the blanks in it."""
    parts = re.fullmatch(r'(<text [^>]*? )x="([\d.]+)"( y="[\d.]+") textLength="[\d.]+"([^>]*>)(.*)</text>', found[0])
    if not parts:
        return found[0]
    before, x, y, after, text = parts.groups()
    words = []
    for word in re.finditer(r"\S+", html.unescape(text)):
        place = f'x="{float(x) + word.start() * CELL:g}"{y} textLength="{len(word[0]) * CELL:g}"'
        words.append(f"{before}{place}{after}{html.escape(word[0])}</text>")
    return "".join(words)


def at_a_terminal(words: list[str], lines: int, until: Callable[[str], bool] = lambda _: False) -> str:
    """All that a command prints at one, or all until that is enough."""
    pid, master = pty.fork()
    if pid == 0:
        os.execvp(words[0], words)
    import fcntl
    import struct

    fcntl.ioctl(master, TIOCSWINSZ, struct.pack("HHHH", lines, WIDTH, 0, 0))
    seen = b""
    end = time.monotonic() + 60
    while not until(seen.decode(errors="ignore")) and time.monotonic() < end:
        if select.select([master], [], [], 1)[0]:
            try:
                seen += os.read(master, 65536)
            except OSError:
                break  # it has ended
    os.kill(pid, signal.SIGTERM)
    os.close(master)
    os.waitpid(pid, 0)
    return seen.decode(errors="ignore")


@contextmanager
def running() -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Starts runs, which end with the context. Each in a session of its own."""
    runs: list[subprocess.Popen[bytes]] = []

    def start(*words: str) -> subprocess.Popen[bytes]:
        quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        runs.append(subprocess.Popen([DISTLOCK, "run", *words], start_new_session=True, **quiet))
        return runs[-1]

    try:
        yield start
    finally:
        for run in runs:
            run.send_signal(signal.SIGCONT)
            run.terminate()
        for run in runs:
            run.wait()


def below(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in children] + [one for child in children for one in below(int(child))]


def status(folder: Path) -> None:
    with running() as start:
        start("--label", "to tape", "nightly-backup", "sleep", "60")
        start("--ttl", "1m", "--label", "PR 4711", "deploy staging", "sleep", "60")
        late = start("--ttl", "10", "reindex", "sleep", "60")
        start("--min-hold", "5m", "rotate-logs", "true").wait()
        time.sleep(1)
        for _ in range(2):
            start("nightly-backup", "true")
        frozen = [late.pid, *below(late.pid)]
        for pid in frozen:  # a host that has stopped dead: its lease is not renewed
            os.kill(pid, signal.SIGSTOP)
        seen = at_a_terminal([DISTLOCK, "status", "--watch"], 13, lambda seen: bool(finished(seen)))
        for pid in frozen:
            os.kill(pid, signal.SIGCONT)
    save(folder, "status", "distlock status --watch", finished(seen)[0])


def finished(seen: str) -> list[str]:
    """Frames that show an expiring lease, and behind which another one has begun."""
    return [frame for frame in seen.split(HOME)[:-1] if " expiring" in frame]


def history(folder: Path) -> None:
    def run(*words: str) -> None:
        subprocess.run([DISTLOCK, "run", *words], check=False, stderr=subprocess.DEVNULL)

    with running() as start:
        start("nightly-backup", "sleep", "4")
        time.sleep(0.5)
        start("nightly-backup", "sleep", "2")
        run("-n", "nightly-backup", "true")
        run("sync-mail", "sleep", "0.7")
        time.sleep(1)
        run("sync-mail", "sleep", "1.2")
        run("--max-run", "1", "report", "sleep", "9")
        time.sleep(1)
        run("sync-mail", "sh", "-c", "sleep 0.5; exit 3")
        run("-w", "9", "nightly-backup", "sleep", "0.5")
    save(folder, "history", "distlock history", at_a_terminal([DISTLOCK, "history"], 40))


def drill(folder: Path) -> None:
    save(folder, "drill", "distlock drill", at_a_terminal([DISTLOCK, "drill"], 40))


PICTURES = {"status": status, "history": history, "drill": drill}


def inside(scratch: str, folder: Path, wanted: list[str]) -> None:
    socket.sethostname(HOST)
    names = Path(scratch, "passwd")
    names.write_text(f"{USER}:x:0:0::{scratch}:/bin/sh\n")
    subprocess.run(["mount", "--bind", names, "/etc/passwd"], check=True)
    for name in [variable for variable in os.environ if variable.startswith(("DISTLOCK_", "COLUMNS", "LINES"))]:
        del os.environ[name]
    for name in wanted or PICTURES:
        state = Path(scratch, name)
        os.environ.update(
            HOME=scratch, TERM="xterm-256color", DISTLOCK_STATE_DIR=str(state), DISTLOCK_CONFIG=os.devnull
        )
        PICTURES[name](folder)


def main() -> int:
    arguments = sys.argv[1:]
    if arguments[:1] == ["--inside"]:
        inside(arguments[1], Path(arguments[2]), arguments[3:])
        return 0
    folder = Path(arguments.pop(0)).resolve() if arguments and arguments[0] not in PICTURES else HERE
    own = ["--user", "--map-root-user"] if os.geteuid() else []
    scratch = tempfile.mkdtemp()
    try:
        again = [sys.executable, __file__, "--inside", scratch, str(folder), *arguments]
        return subprocess.run(["unshare", *own, "--uts", "--mount", *again], check=False).returncode
    finally:
        shutil.rmtree(scratch)


if __name__ == "__main__":
    sys.exit(main())
