"""Steps in any order, on a real engine."""

from __future__ import annotations

from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test


def check_histories(machine: type[RuleBasedStateMachine]) -> None:
    """Fifteen of twenty-five steps each. Not shortened when one fails: the clock goes on, so that none can be run a
    second time."""
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=15,
            stateful_step_count=25,
            deadline=None,
            phases=(Phase.generate,),
            database=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
        ),
    )
