"""Which backend is good enough for which job."""

from __future__ import annotations

import pytest

from distlock.backends.base import Refused
from distlock.requirement import check_class
from fakes import FakeClock, ScriptedBackend

URL = "scripted://h"


@pytest.fixture
def efficient() -> ScriptedBackend:
    return ScriptedBackend(FakeClock())


@pytest.fixture
def correct() -> ScriptedBackend:
    backend = ScriptedBackend(FakeClock())
    backend.safety = "correctness"  # type: ignore[misc]  # of this one alone
    return backend


def test_a_lower_class_is_refused_without_asking_the_server_and_with_the_reason(efficient: ScriptedBackend) -> None:
    with pytest.raises(Refused) as caught:
        check_class(efficient, URL, "correctness", 1.0)
    assert URL in str(caught.value)
    assert efficient.exclusive_until in str(caught.value)
    assert efficient.log == []


@pytest.mark.parametrize("faults", [(), ("nothing is synced",)])
def test_for_efficiency_any_will_do(
    efficient: ScriptedBackend, correct: ScriptedBackend, faults: tuple[str, ...]
) -> None:
    for backend in (efficient, correct):
        backend.faults = faults
        check_class(backend, URL, "efficiency", 1.0)


def test_a_class_that_the_settings_do_not_keep_is_refused_with_all_reasons(correct: ScriptedBackend) -> None:
    correct.faults = ("nothing is synced", "a standby lags")
    with pytest.raises(Refused, match="nothing is synced; a standby lags"):
        check_class(correct, URL, "correctness", 1.0)
    correct.faults = ()
    check_class(correct, URL, "correctness", 1.0)
