"""Completions: the words in each file are the application's, and each file works in its own shell."""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest
import typer.main
from typer.core import TyperArgument, TyperOption

from distlock.cli.main import build_app
from distlock.supervise.plan import DESCENDANTS
from terminals import Terminal

FOLDER = Path(__file__).resolve().parent.parent / "completions"
BASH = FOLDER / "distlock.bash"
ZSH = FOLDER / "_distlock"
FISH = FOLDER / "distlock.fish"
BASH_COMPLETION = Path("/usr/share/bash-completion/bash_completion")

# Words of the top level and of `run`, in this order.
Words = tuple[set[str], set[str]]


def of_the_application() -> Words:
    """Option words of the real parser. Hidden ones exist only to be refused with a reason."""
    top = typer.main.get_command(build_app())
    context = top.make_context("distlock", [], resilient_parsing=True)
    run = top.get_command(context, "run")  # type: ignore[attr-defined]
    found = []
    for command in (top, run):
        with command.make_context("distlock", [], parent=context, resilient_parsing=True) as inner:
            words: set[str] = set()
            for parameter in command.get_params(inner):
                hidden = isinstance(parameter, TyperOption) and parameter.hidden
                if not hidden and not isinstance(parameter, TyperArgument):
                    words.update(parameter.opts, parameter.secondary_opts)
            found.append(words)
    return found[0], found[1]


def takes_value() -> set[str]:
    top = typer.main.get_command(build_app())
    context = top.make_context("distlock", [], resilient_parsing=True)
    run = top.get_command(context, "run")  # type: ignore[attr-defined]
    options = [p for p in run.params if isinstance(p, TyperOption) and not (p.is_flag or p.count)]
    return {word for option in options for word in option.opts}


def in_bash() -> Words:
    text = BASH.read_text()
    top = re.search(r"compgen -W 'run ([^']*)'", text)
    lists = re.findall(r"local (?:flags|valued)='([^']*)'", text)
    assert top
    assert len(lists) == 2
    return set(top[1].split()), {word for words in lists for word in words.split()}


def in_zsh() -> Words:
    top, _, run = ZSH.read_text().partition("_distlock_run() {")
    return _zsh_options(top), _zsh_options(run)


def _zsh_options(text: str) -> set[str]:
    """``'--ttl=[...'``, and ``'(...)'{-n,--nonblock}'[...'``."""
    alone = re.findall(r"^ +'(-[-\w]+)[=+]?\[", text, re.MULTILINE)
    groups = re.findall(r"\{(-[^}]*)\}'\[", text)
    return {*alone, *(word.rstrip("=+") for group in groups for word in group.split(","))}


def in_fish() -> Words:
    top: set[str] = set()
    run: set[str] = set()
    for line in FISH.read_text().splitlines():
        if line.startswith("complete "):
            words = shlex.split(line)
            where = top if "__distlock_in top" in words else run
            for kind, value in pairwise(words):
                if kind in ("-s", "-l"):
                    where.add(("-" if kind == "-s" else "--") + value)
    return top, run


@pytest.mark.parametrize("words", [in_bash, in_zsh, in_fish])
def test_option_words_are_those_of_the_application(words: Callable[[], Words]) -> None:
    assert words() == of_the_application()


def test_each_file_knows_which_options_take_the_next_word() -> None:
    """Without that, the value of an option would be taken for NAME."""
    expected = takes_value()
    bash = re.search(r"local valued='([^']*)'", BASH.read_text())
    assert bash
    assert set(bash[1].split()) == expected
    fish = [shlex.split(line) for line in FISH.read_text().splitlines() if line.startswith("complete ")]
    assert {
        ("-" if kind == "-s" else "--") + value
        for words in fish
        if "-x" in words
        for kind, value in pairwise(words)
        if kind in ("-s", "-l")
    } == expected
    zsh = {word for line in ZSH.read_text().splitlines() if "]:" in line for word in _zsh_options(line)}
    assert zsh == expected
    shorts = "".join(sorted(word[1] for word in expected if not word.startswith("--")))
    longs = {word[2:] for word in expected if word.startswith("--")}
    flags = "".join(sorted(word[1] for word in of_the_application()[1] - expected if not word.startswith("--")))
    for file in (BASH, FISH):
        cluster = re.search(r"\^-\[(\w+)\]\*\(?\[(\w+)\]", file.read_text())
        assert cluster, file
        assert ("".join(sorted(cluster[1])), "".join(sorted(cluster[2]))) == (flags, shorts), file
    walked = re.search(r"\^--\(([^)]*)\)\$", FISH.read_text())
    assert walked
    assert set(walked[1].split("|")) == longs


@pytest.mark.parametrize("file", [BASH, ZSH, FISH])
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
    done = subprocess.run(["bash", "--norc", "--noprofile", "-c", script], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return sorted(set(done.stdout.split()))


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("distlock ", ["--help", "--version", "-V", "-h", "run"]),
        ("distlock r", ["run"]),
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
    ],
)
def test_bash_alone(line: str, offered: list[str]) -> None:
    assert bash_offers(line) == offered


def test_bash_offers_every_option() -> None:
    assert set(bash_offers("distlock run -")) == of_the_application()[1]


# --- bash and zsh at a terminal -------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=["bash", "zsh"])
def shell(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Terminal]:
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
    environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(home), "LC_ALL": "C.UTF-8"}
    with Terminal(command, environment) as terminal:
        terminal.press(setup + "\n")
        terminal.read_until("ready")
        yield terminal


@pytest.mark.parametrize(
    ("keys", "arguments"),
    [
        ("ru\tx", "run|x"),
        ("--v\t", "--version"),
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


# --- fish, which can be asked ---------------------------------------------------------------------------------------


def fish_offers(line: str, home: Path) -> list[str]:
    done = subprocess.run(
        ["fish", "-c", "source $argv[1]; complete --do-complete=$argv[2]", str(FISH), line],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(home), "LC_ALL": "C.UTF-8"},
    )
    assert done.stderr == ""
    return sorted({offer.split("\t")[0] for offer in done.stdout.splitlines()})


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("distlock ", ["run"]),
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
    ],
)
def test_fish(line: str, offered: list[str], tmp_path: Path) -> None:
    assert fish_offers(line, tmp_path) == offered
