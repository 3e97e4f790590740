"""Completions: the words in each file are the application's, and each file works in its own shell."""

from __future__ import annotations

import importlib
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import typer.main
from typer.core import TyperOption

from distlock.cli.main import build_app
from distlock.supervise.plan import DESCENDANTS
from processes import DISTLOCK, Lab, wait_until
from terminals import Terminal

FOLDER = Path(__file__).resolve().parent.parent / "completions"
BASH = FOLDER / "distlock.bash"
ZSH = FOLDER / "_distlock"
FISH = FOLDER / "distlock.fish"
BASH_COMPLETION = Path("/usr/share/bash-completion/bash_completion")


def generator() -> ModuleType:
    """It and its parts lie beside what they write, in no package."""
    sys.path.insert(0, str(FOLDER))
    try:
        return importlib.import_module("generate")
    finally:
        sys.path.remove(str(FOLDER))


GENERATE = generator()


def words_of_the_application() -> dict[str, set[str]]:
    """Option words of the real parser, by command. Hidden ones exist only to be refused with a reason."""
    top = typer.main.get_command(build_app())
    context = top.make_context("distlock", [], resilient_parsing=True)
    commands = {"": top} | {name: command for name, command in top.commands.items() if not command.hidden}  # type: ignore[attr-defined]
    found: dict[str, set[str]] = {}
    for name, command in commands.items():
        with command.make_context(name, [], parent=context, resilient_parsing=True) as inner:
            options = [p for p in command.get_params(inner) if isinstance(p, TyperOption) and not p.hidden]
            found[name] = {word for option in options for word in (*option.opts, *option.secondary_opts)} | {
                "-h",
                "--help",
            }
    return found


APPLICATION = words_of_the_application()


@pytest.mark.parametrize("file", [BASH, ZSH, FISH], ids=lambda file: file.name)
def test_the_generated_part_is_that_of_this_application(file: Path) -> None:
    """If not: what is told here is missing; `completions/generate.py` writes it."""
    assert file.read_text() == GENERATE.generated(file.name)


@pytest.mark.parametrize("command", APPLICATION)
def test_zsh_is_told_every_option(command: str) -> None:
    """bash and fish are asked, below."""
    table = ZSH.read_text().partition("_distlock_table() {")[2]
    section = table.partition(f"\n  {command or repr('')})\n")[2].partition(";;")[0]
    alone = re.findall(r"'\*?(-[-\w]+)[=+]?\[", section)
    groups = re.findall(r"\{(-[^}]*)\}'\[", section)
    assert {*alone, *(word.rstrip("=+") for group in groups for word in group.split(","))} == APPLICATION[command]


@pytest.mark.parametrize("file", [BASH, ZSH, FISH], ids=lambda file: file.name)
def test_values_offered_are_values_taken(file: Path) -> None:
    text = file.read_text()
    assert " ".join(DESCENDANTS) in text
    offered = re.search(r"TERM(?: [A-Z0-9]+)+", text)
    assert offered
    assert {f"SIG{name}" for name in offered[0].split()} <= set(signal.Signals.__members__)


@pytest.mark.parametrize(("shell", "file"), [("bash", BASH), ("zsh", ZSH), ("fish", FISH)])
def test_syntax(shell: str, file: Path) -> None:
    done = subprocess.run([shell, "-n", file], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


# --- bash, as readline calls it -------------------------------------------------------------------------------------


def bash_offers(line: str, *, setup: str = "") -> list[str]:
    """What bash would offer at the end of ``line``, with COMP_WORDS split as readline splits, at ':' and '=' too."""
    words = re.findall(r"[:=]+|[^\s:=]+", line)
    if line[-1].isspace():
        words.append("")
    script = (
        f"{setup}\nsource {shlex.quote(str(BASH))}\n"
        f"COMP_LINE={shlex.quote(line)} COMP_POINT={len(line)} COMP_CWORD={len(words) - 1}\n"
        f"COMP_WORDS=({' '.join(map(shlex.quote, words))})\n"
        '_distlock\nprintf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(
        ["bash", "--norc", "--noprofile", "-c", script],
        capture_output=True,
        text=True,
        check=True,
        env={**ENVIRONMENT, "DISTLOCK_STATE_DIR": "/nonexistent"},
    )
    assert done.stderr == ""
    return sorted(set(done.stdout.split()))


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("distlock r", ["release", "run"]),
        ("distlock --v", ["--version"]),
        ("distlock run --t", ["--timeout", "--ttl"]),
        ("distlock run --ttl 5 -n --no", ["--nonblock"]),
        ("distlock run --descendants ", ["kill", "leave", "wait"]),
        ("distlock run --descendants k", ["kill"]),
        ("distlock run --descendants=k", ["kill"]),
        ("distlock run --kill-signal U", ["USR1", "USR2"]),
        ("distlock run --kill-signal u", ["USR1", "USR2"]),
        ("distlock run -b l", ["local:"]),
        ("distlock run -b redis://h:1/0 --kill-s", ["--kill-signal"]),
        ("distlock run --backend=redis://h:1/0 --kill-s", ["--kill-signal"]),
        ("distlock run -nw 5 --nonb", ["--nonblock"]),
        ("distlock run -w5 --nonb", ["--nonblock"]),
        ("distlock run --ttl ", []),
        ("distlock run --label --t", []),  # the value, whatever it looks like
        ("distlock run ", []),  # NAME
        ("distlock run -- --t", []),  # NAME
        ("distlock run p -", ["--", "-c"]),
        ("distlock run p --t", []),  # the child's, not ours
        ("distlock run p -- --t", []),
        ("distlock run p mkfif", ["mkfifo"]),
        ("distlock run p -- mkfif", ["mkfifo"]),
        ("distlock run --ttl 5 -nb local:///d/x p mkfif", ["mkfifo"]),
        ("distlock run -- p mkfif", ["mkfifo"]),
        ("distlock nonsense --", []),
        ("distlock locknames --", []),
        ("distlock fence --st", ["--store"]),
        ("distlock fence r mkfif", []),
        ("distlock fence r -- mkfif", ["mkfifo"]),
        ("distlock fence --token 5 r -- mkfif", ["mkfifo"]),
        ("distlock fence -- r mkfif", ["mkfifo"]),
        ("distlock config i", ["init"]),
        ("distlock inspect p --suc", ["--succeeded-within"]),
        ("distlock history p --j", ["--json"]),
        (
            "distlock release --token 1 p --",
            ["--backend", "--config", "--help", "--now", "--owner", "--token", "--yes"],
        ),
    ],
)
def test_bash_alone(line: str, offered: list[str]) -> None:
    assert bash_offers(line) == offered


@pytest.mark.parametrize("command", APPLICATION)
def test_bash_offers_every_option(command: str) -> None:
    assert set(bash_offers(f"distlock {command} -".replace("  ", " "))) == APPLICATION[command]


def test_bash_offers_every_command() -> None:
    assert set(bash_offers("distlock ")) == set(APPLICATION) - {""} | APPLICATION[""]


# --- locks to be named -----------------------------------------------------------------------------------------------

ENVIRONMENT = {"PATH": f"{Path(DISTLOCK).parent}:/usr/local/bin:/usr/bin:/bin", "LC_ALL": "C.UTF-8"}
NAMES = ["my nightly job", "größe", "it's", "price $x", "team:report"]


@pytest.fixture(scope="module")
def locks(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """A record of a few locks, whose names shells have to quote."""
    lab = Lab(tmp_path_factory.mktemp("locks"), "local:")
    for name in NAMES:
        assert lab.run(name, "true").returncode == 0
    return lab


# --- bash and zsh at a terminal -------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=["bash", "zsh"])
def shell(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, locks: Lab) -> Iterator[Terminal]:
    """A shell in which distlock is a function that prints its arguments, as <a|b|c>."""
    home = tmp_path_factory.mktemp("home")
    if request.param == "bash":
        command = ["bash", "--norc", "--noprofile", "-i"]
        setup = (
            f"PS1=; source {BASH_COMPLETION}; source {shlex.quote(str(BASH))}; "
            "distlock() { local IFS='|'; printf '<%s>\\n' \"$*\"; }; echo rea''dy"
        )
    else:
        command = ["zsh", "-f", "-i"]
        setup = (
            f"PS1=; fpath=({shlex.quote(str(FOLDER))} $fpath); autoload -Uz compinit; compinit -D -u; "
            "distlock() { print -r -- \"<${(j:|:)@}>\" }; print rea''dy"
        )
    environment = {**ENVIRONMENT, "HOME": str(home), "DISTLOCK_STATE_DIR": str(locks.folder / "state")}
    with Terminal(command, environment) as terminal:
        terminal.press(setup + "\n")
        terminal.read_until("ready")
        yield terminal


@pytest.mark.parametrize(
    ("keys", "arguments"),
    [
        ("ru\tx", "run|x"),
        ("insp\tx", "inspect|x"),
        ("--v\t", "--version"),
        ("status --al\tx", "status|--all|x"),
        ("inspect p --succ\t", "inspect|p|--succeeded-within"),
        ("config in\tx", "config|init|x"),
        ("fence r -- mkfif\tx", "fence|r|--|mkfifo|x"),
        ("run --nonb\tp", "run|--nonblock|p"),
        ("run --descendants k\tp", "run|--descendants|kill|p"),
        ("run --descendants=k\tp", "run|--descendants=kill|p"),
        ("run --kill-signal IN\tp", "run|--kill-signal|INT|p"),
        ("run -b loc\t p", "run|-b|local:|p"),
        ("run -b redis://h:1 --jit\t x", "run|-b|redis://h:1|--jitter|x"),
        ("run -w 5 p mkfif\tx", "run|-w|5|p|mkfifo|x"),
        ("run p -- mkfif\tx", "run|p|--|mkfifo|x"),
        ("run -- p mkfif\tx", "run|--|p|mkfifo|x"),
        # The command's own completion, for its options and its files.
        ("run --ttl 5 p ls --autho\tx", "run|--ttl|5|p|ls|--author|x"),
        ("run --label 'a b' 'my job' ls --autho\tx", "run|--label|a b|my job|ls|--author|x"),
        ("run p distlock run --desc\t", "run|p|distlock|run|--descendants"),
        ("run p cat /etc/hostn\t", "run|p|cat|/etc/hostname"),
        # Behind NAME nothing is ours.
        ("run p --tt\tx", "run|p|--ttx"),
    ],
)
def test_keys_at_a_terminal(shell: Terminal, keys: str, arguments: str) -> None:
    shell.press(f"distlock {keys}\n")
    shell.read_until("<")
    assert shell.read_until(">")[:-1].removesuffix("=") == arguments


@pytest.mark.parametrize(
    ("keys", "arguments"),
    [
        ("inspect my\tx", "inspect|my nightly job|x"),
        ("run -w 5 my\\ n\ttrue", "run|-w|5|my nightly job|true"),
        ("release gr\tx", "release|größe|x"),
        ("history it\tx", "history|it's|x"),
        ("status pr\t my\tx", "status|price $x|my nightly job|x"),
        ("inspect team:r\tx", "inspect|team:report|x"),
        ("inspect --backend local: tea\tx", "inspect|--backend|local:|team:report|x"),
        ("inspect 'my\tx", "inspect|my nightly job|x"),
        ("config --lock gr\t --json", "config|--lock|größe|--json"),
        # Of another place there is none.
        ("inspect -b redis://127.0.0.1:1 my\tx", "inspect|-b|redis://127.0.0.1:1|myx"),
    ],
)
def test_names_of_locks_at_a_terminal(shell: Terminal, keys: str, arguments: str) -> None:
    def typed() -> bool:
        # A second is not always enough for a machine that is busy with other tests, and then nothing is offered.
        shell.press(f"distlock {keys}\n")
        shell.read_until("<")
        return shell.read_until(">")[:-1] == arguments

    wait_until(typed, 30, arguments)


@pytest.mark.parametrize("kind", ["bash", "zsh", "fish"])
def test_a_backend_that_does_not_answer_costs_a_second_and_no_word(kind: str, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"redis://127.0.0.1:{silent.getsockname()[1]}"
        before = time.monotonic()
        if kind == "bash":
            assert bash_offers(f"distlock inspect -b {url} m") == []
        elif kind == "fish":
            assert fish_offers(f"distlock inspect -b {url} m", tmp_path) == []
        else:
            with Terminal(["zsh", "-f", "-i"], {**ENVIRONMENT, "HOME": str(tmp_path)}) as zsh:
                zsh.press(f"PS1=; fpath=({FOLDER} $fpath); autoload -Uz compinit; compinit -D -u; print rea''dy\n")
                zsh.read_until("ready")
                before = time.monotonic()
                zsh.press(f"echo inspect -b {url}; distlock inspect -b {url} m\t\x15echo en''d\n")
                assert "distlock: " not in zsh.read_until("\nend")
        assert time.monotonic() - before < 5


# --- fish, which can be asked ---------------------------------------------------------------------------------------


def fish_offers(line: str, home: Path, state: str = "") -> list[str]:
    done = subprocess.run(
        ["fish", "-c", "source $argv[1]; complete --do-complete=$argv[2]", str(FISH), line],
        capture_output=True,
        text=True,
        check=True,
        env={**ENVIRONMENT, "HOME": str(home), "DISTLOCK_STATE_DIR": state or str(home / "state")},
    )
    assert done.stderr == ""
    return sorted({offer.split("\t")[0] for offer in done.stdout.splitlines()})


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("distlock r", ["release", "run"]),
        ("distlock --", ["--help", "--version"]),
        ("distlock run --t", ["--timeout", "--ttl"]),
        ("distlock run --descendants ", ["kill", "leave", "wait"]),
        ("distlock run --descendants=k", ["--descendants=kill"]),
        ("distlock run --kill-signal U", ["USR1", "USR2"]),
        ("distlock run -b l", ["local:"]),
        ("distlock run -b redis://h:1/0 --kill-s", ["--kill-signal"]),
        ("distlock run -nw 5 --nonb", ["--nonblock"]),
        ("distlock run ", []),
        ("distlock run -- --t", []),
        ("distlock run p -", ["--", "-c"]),
        ("distlock run p -- --t", []),
        ("distlock run p mkfif", ["mkfifo"]),
        ("distlock run p -- mkfif", ["mkfifo"]),
        ("distlock run -- p mkfif", ["mkfifo"]),
        ("distlock run --ttl 5 -nb local:///d/x p ls --autho", ["--author"]),
        ("distlock run p -- distlock run --desc", ["--descendants"]),
        ("distlock run 'my job' cat /etc/hostn", ["/etc/hostname"]),
        ("distlock fence r mkfif", []),
        ("distlock fence r -- mkfif", ["mkfifo"]),
        ("distlock fence --token 5 r -- mkfif", ["mkfifo"]),
        ("distlock config i", ["init"]),
        ("distlock inspect p --suc", ["--succeeded-within"]),
    ],
)
def test_fish(line: str, offered: list[str], tmp_path: Path) -> None:
    assert fish_offers(line, tmp_path) == offered


@pytest.mark.parametrize("command", APPLICATION)
def test_fish_offers_every_option(command: str, tmp_path: Path) -> None:
    asked = f"distlock {command} ".replace("  ", " ")
    assert set(fish_offers(f"{asked}-", tmp_path)) | set(fish_offers(f"{asked}--", tmp_path)) == APPLICATION[command]


def test_fish_offers_every_command(tmp_path: Path) -> None:
    assert set(fish_offers("distlock ", tmp_path)) == set(APPLICATION) - {""}


@pytest.mark.parametrize(
    "line", ["inspect ", "status p ", "release --token 5 ", "run -n ", "run -- ", "config --lock "]
)
def test_fish_offers_the_names_of_locks(line: str, locks: Lab, tmp_path: Path) -> None:
    def offered() -> bool:
        return set(NAMES) <= set(fish_offers(f"distlock {line}", tmp_path, str(locks.folder / "state")))

    wait_until(offered, 30)


def test_fish_offers_one_name_where_one_is_taken(locks: Lab, tmp_path: Path) -> None:
    assert fish_offers("distlock inspect p ", tmp_path, str(locks.folder / "state")) == []
