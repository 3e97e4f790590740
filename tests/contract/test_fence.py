"""A fence register in an engine: the greatest token counts, whoever has it; or the engine says that it keeps none."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from distlock.backends.base import Backend, Refused


def keeps_fences(backend: Backend, name: str) -> bool:
    try:
        backend.advance_fence(f"{name} trial", 0, 1, 5.0)
    except Refused:
        assert backend.safety == "efficiency" or type(backend).__module__.endswith(".local")
        return False
    return True


def test_greater_and_equal_tokens_pass(backend: Backend, other: Backend, name: str) -> None:
    if not keeps_fences(backend, name):
        return
    greatest = 0
    for token in (5, 5, 9, 8, 9, 0, 10, 2**63 - 1, 11):
        greatest = max(greatest, token)
        for one in (backend, other):
            assert one.advance_fence(name, 0, token, 5.0) == greatest


def test_resources_and_indices_are_apart(backend: Backend, name: str) -> None:
    if not keeps_fences(backend, name):
        return
    assert backend.advance_fence(name, 0, 9, 5.0) == 9
    assert backend.advance_fence(name, 1, 3, 5.0) == 3
    assert backend.advance_fence(f"{name}/1", 0, 4, 5.0) == 4
    assert backend.advance_fence(name, 0, 1, 5.0) == 9


def test_reset(backend: Backend, name: str) -> None:
    if not keeps_fences(backend, name):
        with pytest.raises(Refused):
            backend.reset_fence(name, 0, 5.0)
        return
    assert backend.advance_fence(name, 0, 9, 5.0) == 9
    backend.reset_fence(name, 1, 5.0)
    assert backend.advance_fence(name, 0, 1, 5.0) == 9
    backend.reset_fence(name, 0, 5.0)
    assert backend.advance_fence(name, 0, 1, 5.0) == 1


def test_a_register_is_no_lock(backend: Backend, name: str) -> None:
    if keeps_fences(backend, name):
        backend.advance_fence(name, 0, 9, 5.0)
        assert not [state for state in backend.locks(5.0) if state.name.startswith(name)]


def test_many_at_once(open_more: object, backend: Backend, name: str) -> None:
    """Each answer is at least the token asked with, and the greatest of all stays."""
    if not keeps_fences(backend, name):
        return
    assert callable(open_more)
    backends: list[Backend] = [open_more() for _ in range(4)]

    def work(number: int) -> None:
        for step in range(15):
            token = step * 4 + number
            assert backends[number].advance_fence(name, 0, token, 5.0) >= token

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert backend.advance_fence(name, 0, 0, 5.0) == 59
