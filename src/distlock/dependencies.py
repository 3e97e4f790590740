"""The libraries that this release was made for, and the ones that are there. Asks the installation; imports none."""

from __future__ import annotations

import re
from importlib import metadata
from typing import NamedTuple

_REQUIREMENT = re.compile(r"(?P<name>[A-Za-z0-9._-]+)(?:\[[^\]]*\])?\s*(?P<bounds>[^;]*)")


class Misfit(NamedTuple):
    name: str
    wanted: str
    found: str | None
    """None: not installed."""


def dependencies() -> dict[str, str]:
    """Bounds of the version by name, as in ``>=8,<9``; none where distlock itself is not installed as a package."""
    found = {}
    try:
        lines = metadata.requires("distlock") or ()
    except metadata.PackageNotFoundError:
        lines = ()
    for line in lines:
        if "extra ==" not in line and (match := _REQUIREMENT.match(line)):
            found[match["name"]] = match["bounds"].strip(" ()")
    return found


def version_of(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def misfits() -> list[Misfit]:
    """Libraries that are missing, or of a release that this one was not made for."""
    found = ((name, bounds, version_of(name)) for name, bounds in dependencies().items())
    return [Misfit(*one) for one in found if one[2] is None or not fits(one[2], one[1])]


def fits(version: str, bounds: str) -> bool:
    """Knows the two kinds of bounds that our own list has, and lets any other pass."""
    for bound in filter(None, map(str.strip, bounds.split(","))):
        if bound.startswith(">=") and _numbers(version) < _numbers(bound[2:]):
            return False
        if bound.startswith("<") and not bound.startswith("<=") and _numbers(version) >= _numbers(bound[1:]):
            return False
    return True


def _numbers(version: str) -> tuple[int, ...]:
    """The release alone; ``8.0`` is ``8``, and a pre-release counts as its release."""
    found = re.match(r"\d+(\.\d+)*", version.strip())
    numbers = [int(part) for part in found[0].split(".")] if found else []
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)
