#!/usr/bin/env python3
"""Writes the parts of the three completions that repeat what the application knows: commands, options, values.

    .venv/bin/python completions/generate.py           after a change of the command line
    .venv/bin/python completions/generate.py --check   ends with 1 and a diff if that was forgotten

The rest of each file is written by hand and stays: only what stands between the two marks is replaced.
"""

from __future__ import annotations

import difflib
import sys
from pathlib import Path

from command_line import application
from shells import bash, fish, zsh

FOLDER = Path(__file__).resolve().parent
BEGIN = "# >>> from the application, by completions/generate.py: edits are lost"
END = "# <<<"

FILES = {"distlock.bash": bash, "_distlock": zsh, "distlock.fish": fish}


def generated(file: str) -> str:
    """What the file should be."""
    text = (FOLDER / file).read_text()
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(f"\n{END}\n")
    if not (begin and end):
        raise SystemExit(f"{file}: the marks are missing")
    return f"{before}{begin}\n{FILES[file](application())}\n{END}\n{after}"


def main() -> int:
    stale = 0
    for file in FILES:
        present, wanted = (FOLDER / file).read_text(), generated(file)
        if "--check" not in sys.argv[1:]:
            (FOLDER / file).write_text(wanted)
        elif present != wanted:
            stale = 1
            lines = (present.splitlines(), wanted.splitlines(), file, "as the application is now")
            print("\n".join(difflib.unified_diff(*lines, lineterm="", n=0)))
    return stale


if __name__ == "__main__":
    sys.exit(main())
