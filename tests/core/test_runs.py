"""Which request of a schedule becomes a run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from contracts.group.config import RunRules
from contracts.jobs.run import RunRequest, RunState, time_of
from lambdas.core.runs import next_state

NOW = 1_800_000_000.0
DONE = RunState(RunRequest(time_of(NOW - 86_400)), "a" * 40, NOW - 86_400)


def at(seconds: float) -> RunRequest:
    return RunRequest(time_of(NOW + seconds))


@pytest.mark.parametrize(
    ("state", "request_", "rules", "is_ended", "expected"),
    [
        (RunState(), at(-60), RunRules(), True, RunState(at(-60), "b" * 40, NOW)),
        (DONE, at(-60), RunRules(), True, RunState(at(-60), "b" * 40, NOW)),
        (DONE, at(-60), RunRules(), False, replace(DONE, dropped=at(-60).time)),
        (DONE, at(-60), RunRules("wait"), False, replace(DONE, waits=at(-60).time)),
        (DONE, at(-7200), RunRules(), True, RunState(at(-7200), "b" * 40, NOW)),
        (DONE, at(-7200), RunRules(missed="skip"), True, replace(DONE, dropped=at(-7200).time)),
        (replace(DONE, dropped=at(-60).time), at(-60), RunRules(), True, replace(DONE, dropped=at(-60).time)),
        (DONE, DONE.request, RunRules(), True, DONE),
        (DONE, at(-90_000), RunRules(), True, DONE),
        (DONE, at(3600), RunRules(), True, DONE),
        (DONE, None, RunRules(), True, DONE),
    ],
)
def test_a_request_starts_one_run(
    state: RunState, request_: RunRequest | None, rules: RunRules, is_ended: bool, expected: RunState
) -> None:
    found = next_state(state, request_, rules, "b" * 40, NOW, is_ended=is_ended)
    assert found == expected
    assert next_state(found, request_, rules, "b" * 40, NOW, is_ended=is_ended) == found


def test_one_that_waited_was_not_missed() -> None:
    waits = replace(DONE, waits=at(-7200).time)
    assert next_state(waits, at(-7200), RunRules("wait", "skip"), "b" * 40, NOW, is_ended=True).request == at(
        -7200
    )
