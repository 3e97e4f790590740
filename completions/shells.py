"""The same for three shells: tables for bash, specifications for zsh, lines of ``complete`` for fish."""

from __future__ import annotations

from command_line import Command, Option

TITLES = {"D": "duration", "N": "number", "SIG": "signal"}


# --- bash -----------------------------------------------------------------------------------------------------------


def wrapped(words: list[str], indent: str, width: int = 116) -> str:
    lines = [""]
    for word in words:
        if len(indent) + len(lines[-1]) + 1 + len(word) > width:
            lines.append("")
        lines[-1] += f" {word}" if lines[-1] else word
    return f"\n{indent}".join(lines)


def bash(commands: list[Command]) -> str:
    top, *rest = commands
    out = [
        "__distlock_table()",
        "{",
        "    # Of the command $1: flags, options with a value, what its arguments are; empty: the top level.",
        "    case $1 in",
        "        '')",
        f"            commands='{wrapped([command.name for command in rest], ' ' * 16)}'",
        f"            flags='{' '.join(top.flags)}'",
        "            ;;",
    ]
    for command in rest:
        out += [f"        {command.name})", f"            flags='{wrapped(command.flags, ' ' * 16)}'"]
        if command.valued:
            out.append(f"            valued='{wrapped(command.valued, ' ' * 16)}'")
        if command.positional:
            out.append(f"            arguments='{' '.join(command.positional)}'")
        out.append("            ;;")
    out += [
        "    esac",
        "}",
        "",
        "__distlock_values()",
        "{",
        "    # What can be said to option $2 of command $1.",
        '    case "$1 $2" in',
    ]
    for command in commands:
        for option in command.options:
            pattern = " | ".join(f"'{command.name} {word}'" for word in option.words)
            does = [f"values='{' '.join(option.values)}'"] if option.values else []
            does += ["files=1"] if option.files else []
            does += ["locks=1"] if option.locks else []
            if option.metavar and does:
                out.append(f"        {pattern}) {'; '.join(does)} ;;")
    return "\n".join([*out, "    esac", "}"])


# --- zsh ------------------------------------------------------------------------------------------------------------


def zsh_quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace("[", "\\[").replace("]", "\\]").replace(":", "\\:").replace("'", "'\\''")


def zsh_action(option: Option) -> str:
    title = TITLES.get(option.metavar, option.metavar.lower().replace("|", ", "))
    values = " ".join(value.replace(":", "\\:") for value in option.values)
    if values and option.files:
        return f':{title}:_alternative "words\\:word\\:({values})" "files\\:file\\:_files"'
    if values:
        return f":{title}:({values})"
    return f":{title}:" + ("_files" if option.files else "_distlock_locks" if option.locks else " ")


def zsh_spec(option: Option) -> str:
    text = zsh_quoted(option.help)
    if not option.metavar:
        if set(option.words) & {"-h", "--help", "-V", "--version"}:
            return f"'(- *)'{{{','.join(option.words)}}}'[{text}]'"
        if option.repeats or len(option.words) == 1:
            stem = "*" if option.repeats else ""
            return " ".join(f"'{stem}{word}[{text}]'" for word in option.words)
        return f"'({' '.join(option.words)})'{{{','.join(option.words)}}}'[{text}]'"
    marked = [word + ("=" if word.startswith("--") else "+") for word in option.words]
    if len(marked) == 1:
        return f"'{marked[0]}[{text}]{zsh_action(option)}'"
    return f"'({' '.join(option.words)})'{{{','.join(marked)}}}'[{text}]{zsh_action(option)}'"


def zsh_arguments(command: Command) -> list[str]:
    specs = []
    for place, kind in enumerate(command.positional, 1):
        if kind == "command":
            specs.append("'*:::command:_distlock_command'")
        elif kind == "locks":
            specs.append("'*:lock name or pattern:_distlock_locks'")
        elif kind == "lock":
            specs.append(f"'{place}:lock name:_distlock_locks'")
        else:
            specs.append(f"'{place}:{kind}:" + ('_guard "^-*" "text"\'' if kind == "text" else f"({kind})'"))
    return specs


def zsh(commands: list[Command]) -> str:
    top, *rest = commands
    listed = [f"      '{command.name}:{zsh_quoted(command.help)}'" for command in rest]
    out = [
        "_distlock_table() {",
        "  # Of the command $1: what _arguments needs; of none: the commands and the options.",
        "  case $1 in",
        "  '')",
        "    subcommands=(",
        *listed,
        "    )",
        "    specs=(",
    ]
    out += [f"      {zsh_spec(option)}" for option in top.options] + ["    )", "    ;;"]
    for command in rest:
        specs = [*(zsh_spec(option) for option in command.options), *zsh_arguments(command)]
        out += [f"  {command.name})", "    specs=(", *(f"      {spec}" for spec in specs), "    )", "    ;;"]
    return "\n".join([*out, "  esac", "}"])


# --- fish -----------------------------------------------------------------------------------------------------------


def fish_quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def fish_takes_next(command: Command) -> str:
    """A pattern for the words whose value is the word behind them; of joined short options the last one counts."""
    shorts = "".join(word[1] for word in command.valued if not word.startswith("--"))
    flags = "".join(word[1] for word in command.flags if not word.startswith("--"))
    longs = "|".join(word[2:] for word in command.valued if word.startswith("--"))
    return (f"^-[{flags}]*[{shorts}]$|" if shorts else "") + f"^--({longs})$"


def fish_option(command: Command, option: Option) -> str:
    words = [f"-s {word[1:]}" for word in option.shorts] + [f"-l {word[2:]}" for word in option.longs]
    line = f"complete -c distlock -n '__distlock_in {command.name or 'top'}' {' '.join(words)}"
    if option.metavar:
        offers = [*option.values, *(["(__fish_complete_path (commandline -ct))"] if option.files else [])]
        offers += ["(__distlock_locks)"] if option.locks else []
        line += " -x" + (f" -a '{' '.join(offers)}'" if offers else "")
    return f"{line} -d {fish_quoted(option.help)}"


def fish(commands: list[Command]) -> str:
    rest = commands[1:]
    out = ["function __distlock_takes_next --argument-names name word", "    switch $name"]
    for command in rest:
        if command.valued:
            out += [
                f"        case {command.name}",
                f"            string match -qr -- '{fish_takes_next(command)}' $word",
            ]
    out += ["        case '*'", "            false", "    end", "end"]
    with_command = " ".join(command.name for command in rest if "command" in command.positional)
    out += ["", f"set -g __distlock_with_command {with_command}", ""]
    for command in rest:
        out.append(f"complete -c distlock -n '__distlock_in top' -a {command.name} -d {fish_quoted(command.help)}")
    for command in commands:
        if command.options:
            out.append("")
        out += [fish_option(command, option) for option in command.options]
        for kind in command.positional:
            where = f"complete -c distlock -n '__distlock_at {command.name} {kind}'"
            if kind in ("lock", "locks"):
                out.append(f"{where} -a '(__distlock_locks)'")
            elif kind not in ("command", "text"):
                out.append(f"{where} -a {kind}")
    return "\n".join(out)
