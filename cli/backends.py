"""``distlock backends``: the engines, by the scheme of their URLs."""

from __future__ import annotations

from typing import Annotated

import typer

from distlock.backends import SCHEMES, engine_of
from distlock.backends.base import Unavailable
from distlock.lock_view import VERSION, Plain


def backends(
    as_json: Annotated[bool, typer.Option("--json", help="For programs: keys and units are stable.")] = False,
) -> None:
    """List the engines: for which class of locks they are good, until when a lock there is exclusive, over what its
    tokens grow, and in which order waiters are served.

    Correctness: a double run corrupts. Efficiency: a rare double run costs only money.
    """
    from .render import print_backends, print_json

    rows: list[Plain] = [_row(scheme) for scheme in SCHEMES]
    if as_json:
        print_json({"version": VERSION, "backends": rows})
    else:
        print_backends(rows)


def _row(scheme: str) -> dict[str, Plain]:
    try:
        engine = engine_of(scheme)
    except Unavailable as error:
        # Its client library is broken: no reason to be silent about the others.
        told: dict[str, Plain] = dict.fromkeys(("class", "exclusive_until", "token_scope", "fifo"))
        return {"scheme": scheme, **told, "problem": str(error)}
    return {
        "scheme": scheme,
        "class": engine.safety,
        "exclusive_until": engine.exclusive_until,
        "token_scope": engine.token_scope,
        "fifo": engine.fifo,
        "problem": None,
    }
