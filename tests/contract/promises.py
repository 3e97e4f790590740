"""What an engine says of itself in its class, where the suite has to go by it."""

from __future__ import annotations

from collections.abc import Sequence

from distlock.backends.base import Backend


def assert_tokens_grow(backend: Backend, tokens: Sequence[int | None]) -> None:
    """Strictly, in this order; an engine without tokens gives none, ever."""
    if not backend.token_scope:
        assert set(tokens) <= {None}
        return
    known = [token for token in tokens if token is not None]
    assert len(known) == len(tokens)
    assert known == sorted(set(known))
    assert known[0] > 0
    assert known[-1] < 2**63


def assert_in_order(backend: Backend, served: Sequence[object], came: Sequence[object]) -> None:
    """First come, first served; an engine that does not promise it still serves each of them."""
    assert list(served) == list(came) if backend.fifo else set(served) == set(came)
