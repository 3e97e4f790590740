"""What an engine says of its server."""

from __future__ import annotations

from distlock.backends.base import Backend


def test_a_server_says_what_it_is(backend: Backend) -> None:
    probe = backend.probe(5.0)
    assert probe.server
    assert "\n" not in probe.server
    if probe.clock_offset is not None:
        assert abs(probe.clock_offset) < 5.0  # the same machine
    for finding in probe.findings:
        for text in finding:
            assert text.strip() == text
            assert text
            assert "\n" not in text


def test_a_probe_leaves_nothing(backend: Backend) -> None:
    before = sorted(state.name for state in backend.locks(5.0))
    backend.probe(5.0)
    assert sorted(state.name for state in backend.locks(5.0)) == before
