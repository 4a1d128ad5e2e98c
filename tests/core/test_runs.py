"""Which request of a schedule becomes a run."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from contracts import codec, names
from contracts.group.config import RunRules
from contracts.jobs.run import RunRequest, RunState, time_of
from gpu_spot.jobs import run_request
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
    requests = {"firing": request_} if request_ else {}
    found = next_state(state, requests, rules, "b" * 40, NOW, is_ended=is_ended)
    assert replace(found, considered={}) == expected
    assert next_state(found, requests, rules, "b" * 40, NOW, is_ended=is_ended) == found


def test_one_that_waited_was_not_missed() -> None:
    waits, rules = replace(DONE, waits=at(-7200).time), RunRules("wait", "skip")
    assert next_state(waits, {"firing": at(-7200)}, rules, "b" * 40, NOW, is_ended=True).request == at(-7200)


@pytest.mark.parametrize("by_hand", [-60, -30, -15])
@pytest.mark.parametrize("overlap", ["wait", "skip"])
def test_a_firing_and_a_request_by_hand_replace_none_of_each_other(by_hand: float, overlap: str) -> None:
    rules, requests = RunRules(overlap), {"request": at(by_hand), "firing": at(-30)}  # type: ignore[arg-type]
    state, began, dropped = DONE, list[str](), set[str]()
    for is_ended in (False, True, False, True, True) if overlap == "wait" else (True, False, True):
        after = next_state(state, requests, rules, "b" * 40, NOW, is_ended=is_ended)
        began += [after.request.time] if after.request and after.request != state.request else []
        dropped |= {after.dropped} - {""}
        state = after
    expected = sorted({at(by_hand).time, at(-30).time})
    assert began == (expected if overlap == "wait" else expected[:1])
    # Of two of the same second only one can have its directory.
    assert dropped == ({expected[-1]} if overlap == "skip" or len(expected) == 1 else set())


def test_a_clock_that_is_ahead_hides_no_firing() -> None:
    first = next_state(DONE, {"request": at(200)}, RunRules(), "b" * 40, NOW, is_ended=True)
    assert first.request == at(200)
    both = {"request": at(200), "firing": at(60)}
    assert next_state(first, both, RunRules(), "b" * 40, NOW + 90, is_ended=True).request == at(60)


def test_the_longest_request_that_is_accepted_fits_into_the_parameter_of_the_run() -> None:
    time = "2026-01-01T00:00:00Z"
    request = RunRequest(time, {"A": "a" * (run_request._MAX_BYTES - 80)})
    assert len(json.dumps(codec.dump(request))) <= run_request._MAX_BYTES
    state = RunState(request, "a" * 40, NOW + 0.123456, time, time, dict.fromkeys(names.RUN_REQUESTS, time))
    assert len(json.dumps(codec.dump(state))) <= 4096
