"""What ``distlock --version`` shows below its own version: what a report of a fault has to name."""

from __future__ import annotations

import platform
from sqlite3 import sqlite_version

from distlock.dependencies import dependencies, version_of

_COMES_WITH = {"etcd3": ("grpcio", "protobuf"), "psycopg": ("psycopg-binary",)}
"""On which the client depends more than on itself."""


def installed() -> list[str]:
    """Lines. No client library is imported for them."""
    system = f"Python {platform.python_version()}, SQLite {sqlite_version}, Linux {platform.release()}"
    return [system, *map(_line, dependencies())]


def _line(name: str) -> str:
    beside = [f"{other} {version}" for other in _COMES_WITH.get(name, ()) if (version := version_of(other))]
    return f"{name} {version_of(name) or 'is not installed'}" + (f" ({', '.join(beside)})" if beside else "")
