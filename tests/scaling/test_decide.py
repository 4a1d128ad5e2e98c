"""The scaler's decisions: targets, bounds, and that a missing input never lowers the target."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from typing import Any, Self

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.group.scaling_settings import Bounds, Floor
from contracts.registry.queue_state import QueueState
from lambdas.core.scaling import decide
from lambdas.core.scaling.decide import MIN_RELEASE_SECONDS, ScalingDecision
from lambdas.core.scaling.memory import COOLDOWN_SECONDS, ScalingMemory, dump, parse
from lambdas.core.scaling.model import LoadObservation, Reason
from lambdas.core.scaling.queue_source import QueueSource
from lambdas.core.scaling.staffed_wait import StaffedWait
from lambdas.core.scaling.throughput import WorkDone

MONDAY = 4 * 86400.0
BOUNDS = Bounds(wait_seconds=60, minimum=1, maximum=50)
ZERO = replace(BOUNDS, minimum=0)
SERVED = {"g6.xlarge": WorkDone(60, 240.0)}


def queue(now: float, waiting: int = 0, taken: int = 0, arriving: float = 4.0) -> QueueState:
    return QueueState(now, waiting, taken, 0.0, arriving, arriving, 1)


def observation(
    now: float, target: int = 20, rate: float = 4.0, waiting: int = 0, taken: int = 0, **changes: Any
) -> LoadObservation:
    state = changes.pop("queue", queue(now, waiting, taken, rate))
    load, work_done = QueueSource(state).load(now), SERVED if rate else {}
    usual = LoadObservation(now, target, load, {"g6.xlarge": target}, 0, work_done, 180)
    return replace(usual, **changes)


class Passes:
    """Passes of the scaler, a minute apart; each target is applied at once."""

    def __init__(self, bounds: Bounds = BOUNDS, target: int = 20, start: float = MONDAY) -> None:
        self.bounds, self.target, self.now, self.memory = bounds, target, start - 60, ScalingMemory()

    def observe(self, **changes: Any) -> LoadObservation:
        return observation(self.now, self.target, **changes)

    def run(self, minutes: int = 1, **changes: Any) -> list[ScalingDecision]:
        """Run some passes with changed observations; return their decisions."""
        decisions = []
        for _ in range(minutes):
            self.now += 60
            decision = decide(self.observe(**changes), self.bounds, self.memory)
            self.target, self.memory = decision.target, decision.memory
            decisions.append(decision)
        return decisions

    def after(self, minutes: int, **changes: Any) -> Self:
        self.run(minutes, **changes)
        return self


def test_the_load_decides() -> None:
    [*_, decision] = Passes().run(30)
    # 4 requests a second of 4 s each keep 16 workers busy, plus a reserve for the forecast error and the wait
    assert 17 <= decision.target <= 22
    assert decision.reasons == (Reason.LOAD,)


def test_while_spot_is_scarce_more_requests_may_be_late() -> None:
    own = replace(BOUNDS, wait_seconds=5)
    usual, scarce = (Passes(own).run(30, is_spot_scarce=is_scarce)[-1] for is_scarce in (False, True))
    # at least the workers that the load keeps busy
    assert 16 <= scarce.target < usual.target
    assert (scarce.reasons, usual.reasons) == ((Reason.SCARCE,), (Reason.LOAD,))


def test_headroom_holds_more_load_and_is_no_backlog() -> None:
    usual, half, double = (
        Passes(replace(BOUNDS, maximum=200, headroom=share)).run(30)[-1] for share in (0.0, 0.5, 1.0)
    )
    assert usual.target < 1.35 * usual.target < half.target < 1.6 * usual.target
    assert 1.8 * usual.target < double.target < 2.1 * usual.target
    assert double.expected_rate == usual.expected_rate


def test_workers_on_premises_come_first() -> None:
    alone, helped = (Passes().after(30, on_premises=one).target for one in ({}, {"g6.xlarge": 6}))
    assert helped == alone - 6
    assert Passes(ZERO).after(30, on_premises={"g6.xlarge": 40}).target == 0


@pytest.mark.parametrize("boot_seconds", [60.0, 180.0, 1200.0])
def test_scale_in_once_a_worker_was_not_needed_for_as_long_as_its_successors_boot(
    boot_seconds: float,
) -> None:
    passes = Passes().after(30, boot_seconds=boot_seconds)
    steady = passes.target
    quiet = [decision.target for decision in passes.run(29, rate=1.0, boot_seconds=boot_seconds)]
    minutes = min(COOLDOWN_SECONDS, max(MIN_RELEASE_SECONDS, boot_seconds + 60)) / 60
    assert minutes <= quiet.count(steady) + 1 <= minutes + 4
    assert quiet[-1] < steady / 2
    assert quiet == sorted(quiet, reverse=True)


def test_a_faster_type_needs_fewer() -> None:
    fast = Passes().after(30, work_done={"g6.xlarge": WorkDone(60, 120.0)})
    assert fast.target < 0.7 * Passes().after(30).target


def test_no_scale_in_within_the_cooldown_of_a_scale_out() -> None:
    passes = Passes().after(30)
    steady = passes.target
    [jam] = passes.run(waiting=2000)
    assert jam.target > steady
    targets = [decision.target for decision in passes.run(13, rate=1.0)]
    cooldown = int(COOLDOWN_SECONDS // 60)
    assert targets[: cooldown - 1] == [jam.target] * (cooldown - 1)
    assert targets[: cooldown - 1] == [jam.target] * (cooldown - 1)
    assert targets[cooldown] < jam.target


@pytest.mark.parametrize("target", [3, 20, 80])
def test_never_beyond_the_maximum(target: int) -> None:
    assert Passes(replace(BOUNDS, maximum=10), target).after(5, rate=40.0).target == 10


def test_after_loss_of_the_state_nothing_scales_in_for_nearly_a_cooldown() -> None:
    minutes = COOLDOWN_SECONDS / 60
    targets = [decision.target for decision in Passes().run(int(minutes) + 2, rate=0.5)]
    assert {*targets[: int(0.9 * minutes) - 1]} == {20}
    assert targets[-1] < 20


@pytest.mark.parametrize(("ended", "coming"), [(60.0, 0.0), (0.0, 4.0)])
def test_neither_workers_nor_queue_alone_make_a_service_idle(ended: float, coming: float) -> None:
    served = {"g6.xlarge": WorkDone(ended, 4 * ended)}
    assert Passes(ZERO).after(30).after(60, rate=coming, work_done=served).target > 0


def test_an_in_flight_request_keeps_one_worker() -> None:
    assert Passes(ZERO).after(30).after(59, rate=0.0, taken=1).target == 1


def test_a_queue_state_is_valid_for_three_minutes() -> None:
    young, old = (observation(MONDAY, queue=queue(MONDAY - age)) for age in (170, 190))
    assert Reason.QUEUE_UNKNOWN not in decide(young, BOUNDS, ScalingMemory()).reasons
    assert Reason.QUEUE_UNKNOWN in decide(old, BOUNDS, ScalingMemory()).reasons


def test_a_new_throughput_is_learned_within_hours() -> None:
    [*_, slower] = Passes().after(600).run(360, work_done={"g6.xlarge": WorkDone(60, 480.0)})
    assert slower.worker_rate == pytest.approx(0.125, rel=0.1)


def test_scale_to_zero_only_if_allowed_and_idle_and_back_at_once() -> None:
    passes = Passes(ZERO).after(30)
    not_allowed = copy(passes)
    not_allowed.bounds = BOUNDS
    assert not_allowed.after(60, rate=0.0).target == 1
    idle = passes.run(60, rate=0.0)
    assert idle[9].target > 0
    assert (idle[-1].target, idle[-1].reasons) == (0, (Reason.IDLE,))
    [back] = passes.run(rate=0.0, queue=queue(passes.now + 60, waiting=1, arriving=0.1))
    assert back.target >= 1
    assert Reason.WAKE in back.reasons


def test_the_first_requests_of_a_service_start_one_worker() -> None:
    assert Passes(ZERO, target=0).after(1, work_done={}).target == 1


def test_floors_hold_at_their_times_in_utc() -> None:
    bounds = replace(BOUNDS, floors=(Floor(30, 8 * 60, 18 * 60, frozenset(range(5))),))
    served = {"g6.xlarge": WorkDone(6, 24.0)}
    [*_, at_nine] = Passes(bounds, start=MONDAY + 9 * 3600).run(30, rate=0.1, work_done=served)
    assert at_nine.target == 30
    assert Reason.FLOOR in at_nine.reasons
    assert bounds.floor(MONDAY + 7 * 3600) == bounds.floor(MONDAY + 5 * 86400 + 9 * 3600) == 1


def test_after_a_missing_input_the_cooldown_restarts() -> None:
    passes = Passes().after(30)
    steady = passes.target
    assert passes.after(30, rate=0.5, queue=None).target == steady
    assert passes.after(8, rate=0.5).target == steady
    assert passes.after(4, rate=0.5).target < steady


def test_after_an_outage_of_the_scaler_nothing_scales_in() -> None:
    passes = Passes().after(30)
    steady, passes.now = passes.target, passes.now + 480
    assert passes.after(1, rate=0.5).target == steady


def test_a_short_floor_causes_no_reversal() -> None:
    targets = [one.target for one in Passes(replace(BOUNDS, floors=(Floor(40, 30, 33),))).run(44)]
    assert targets[31] == targets[35] == 40
    assert targets[43] < 40


def test_a_decision_is_idempotent_within_a_minute() -> None:
    steady = Passes().after(30)
    again = decide(steady.observe(), BOUNDS, steady.memory)
    assert again.target == steady.target
    assert again.memory.arrivals == steady.memory.arrivals
    assert again.memory.profile == steady.memory.profile


def test_the_memory_survives_as_text_and_stays_small() -> None:
    memory = ScalingMemory()
    for minute in range(8 * 1440):
        now = MONDAY + minute * 60
        memory = memory.update(observation(now), 60).record_decision(now, 20)
    text = dump(memory)
    assert len(text) < 10_000
    read = parse(text)
    assert read.arrivals == memory.arrivals
    assert read.staffed_wait == memory.staffed_wait
    assert read.desired == memory.desired
    assert read.profile.rates == pytest.approx(memory.profile.rates, rel=1e-3)
    assert dump(read) == text


minutes = st.fixed_dictionaries(
    {
        "arrivals": st.none() | st.floats(0, 30),
        "waiting": st.none() | st.integers(0, 3000),
        "old": st.booleans(),
        "ended": st.integers(0, 200),
        "ready": st.integers(0, 60),
        "booting": st.integers(0, 20),
    }
)


@given(st.lists(minutes, min_size=5, max_size=40), st.integers(0, 3))
def test_the_target_is_within_its_bounds_and_never_lower_for_a_missing_input(
    timeline: list[dict[str, Any]], minimum: int
) -> None:
    bounds = replace(BOUNDS, minimum=minimum)
    target, memory, up, quiet = 20, ScalingMemory(), -100, 0
    for minute, inputs in enumerate(timeline):
        now = MONDAY + minute * 60
        waiting, arrivals = inputs["waiting"], inputs["arrivals"]
        queue_state = (
            None if waiting is None else queue(now - 600 * inputs["old"], waiting, 0, arrivals or 0.0)
        )
        seen = observation(
            now,
            target,
            queue=queue_state,
            ready={"g6.xlarge": inputs["ready"]},
            booting=inputs["booting"],
            work_done={"g6.xlarge": WorkDone(inputs["ended"], 4.0 * inputs["ended"])},
        )
        decision = decide(seen, bounds, memory)
        quiet = (
            quiet + 1
            if arrivals == 0 and queue_state is not None and not inputs["old"] and waiting == 0
            else 0
        )
        assert minimum <= decision.target <= bounds.maximum
        if decision.is_alarm:
            assert decision.target >= target
        if decision.target < target:
            assert minute - up >= COOLDOWN_SECONDS / 60
        if decision.target == 0 < target:
            assert quiet >= 10
        if decision.target > target:
            up = minute
        target, memory = decision.target, decision.memory


def test_late_requests_add_workers_and_punctual_ones_remove_them() -> None:
    steady = Passes().after(30)
    memory, now = steady.memory, steady.now + 60
    late = replace(queue(now, waiting=1), oldest_seconds=90.0)
    shorter, longer = (
        decide(observation(now, queue=state), BOUNDS, memory).memory.staffed_wait.log_factor
        for state in (late, replace(late, oldest_seconds=30.0))
    )
    assert shorter < memory.staffed_wait.log_factor < longer
    learned = [replace(memory, staffed_wait=StaffedWait(log, 4.0)) for log in (-1.5, 1.5)]
    more, fewer = (decide(observation(now), BOUNDS, one).desired or 0 for one in learned)
    assert more > fewer > 0
