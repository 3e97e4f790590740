"""Values in the program's own lines.

A value from a command line may hold newlines, terminal escapes, or bytes that are no text. Printed as it is, it could
forge a second line in a log, recolour a terminal, or make the line that reports a fault a fault of its own.
"""

from __future__ import annotations

SHOWN = 200
"""Characters between the quotes, at most. Every lock name that is printable text is shown whole."""

_SHORT = {"\\": "\\\\", "'": "\\'", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def quoted(value: str) -> str:
    """The value between single quotes: always one printable line of bounded length, never an error. Two values that
    differ look different, as long as they are not shortened. The line may hold non-ASCII letters: whoever writes it
    to a stream chooses errors="backslashreplace"."""
    pieces: list[str] = []
    room = SHOWN
    for character in value:
        piece = _escaped(character)
        room -= len(piece)
        if room < 0:
            return f"'{''.join(pieces)}'... ({len(value)} characters)"
        pieces.append(piece)
    return f"'{''.join(pieces)}'"


def printable(text: str) -> str:
    """A sentence as it is but for what no terminal should get: that is escaped as in quoted values."""
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else _escaped(character) for character in text)


def _escaped(character: str) -> str:
    if character in _SHORT:
        return _SHORT[character]
    if character.isprintable():
        return character
    code = ord(character)
    if code < 0x80:
        return f"\\x{code:02x}"
    if 0xDC80 <= code <= 0xDCFF:
        # A byte of the command line that is no text: surrogateescape has put it there.
        return f"\\x{code - 0xDC00:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
