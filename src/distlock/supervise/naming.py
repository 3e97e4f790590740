"""What ps(1) shows of our processes besides the supervisor."""

from __future__ import annotations


def name_process(name: str) -> None:
    """For people only: where /proc cannot be written, it stays as it was."""
    try:
        with open("/proc/self/comm", "w", encoding="ascii") as file:
            file.write(name)
    except OSError:
        pass
