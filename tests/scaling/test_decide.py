"""The scaler's decisions: targets, bounds, and that a missing input never lowers the target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

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
SERVED = {"g6.xlarge": WorkDone(60, 240.0)}


def queue(now: float, ready: int = 0, taken: int = 0, arriving: float = 4.0) -> QueueState:
    return QueueState(
        observed_at=now,
        ready=ready,
        in_flight=taken,
        oldest_seconds=0,
        publish_rate=arriving,
        ack_rate=arriving,
        consumers=1,
    )


def observation(now: float, target: int = 20, rate: float | None = 4.0, **changes: object) -> LoadObservation:
    state = changes.pop("queue", queue(now, arriving=rate or 0.0))
    assert state is None or isinstance(state, QueueState)
    usual = LoadObservation(
        now=now,
        target=target,
        load=QueueSource(state).load(now),
        ready={"g6.xlarge": target},
        booting=0,
        work_done=SERVED if rate else {},
        boot_seconds=180,
    )
    return replace(usual, **changes)  # type: ignore[arg-type]


def decide_for(
    minutes: int,
    bounds: Bounds = BOUNDS,
    memory: ScalingMemory | None = None,
    start: float = MONDAY,
    **changes: object,
) -> tuple[ScalingDecision, float]:
    """Return the last decision of some minutes, with targets applied at once, and its time."""
    target, memory = int(changes.pop("target", 20)), memory or ScalingMemory()  # type: ignore[call-overload]
    for minute in range(minutes):
        now = start + minute * 60
        decision = decide(observation(now, target, **changes), bounds, memory)  # type: ignore[arg-type]
        target, memory = decision.target, decision.memory
    return decision, now


def test_the_load_decides() -> None:
    decision, _ = decide_for(30)
    # 4 requests a second of 4 s each keep 16 workers busy, plus a reserve for the forecast error and the wait
    assert 17 <= decision.target <= 22
    assert decision.reasons == (Reason.LOAD,)


def test_while_spot_is_scarce_more_requests_may_be_late() -> None:
    own = replace(BOUNDS, wait_seconds=5)
    usual, _ = decide_for(30, own)
    scarce, _ = decide_for(30, own, is_spot_scarce=True)
    # at least the workers that the load keeps busy
    assert 16 <= scarce.target < usual.target
    assert (scarce.reasons, usual.reasons) == ((Reason.SCARCE,), (Reason.LOAD,))


def test_headroom_holds_more_load_and_is_no_backlog() -> None:
    usual, half, double = (
        decide_for(30, replace(BOUNDS, maximum=200, headroom=share))[0] for share in (0.0, 0.5, 1.0)
    )
    assert usual.target < 1.35 * usual.target < half.target < 1.6 * usual.target
    assert 1.8 * usual.target < double.target < 2.1 * usual.target
    assert double.expected_rate == usual.expected_rate


def test_workers_on_premises_come_first() -> None:
    alone, _ = decide_for(30)
    helped, _ = decide_for(30, on_premises={"g6.xlarge": 6})
    assert helped.target == alone.target - 6
    enough, _ = decide_for(30, bounds=replace(BOUNDS, minimum=0), on_premises={"g6.xlarge": 40})
    assert enough.target == 0


@pytest.mark.parametrize("boot_seconds", [60.0, 180.0, 1200.0])
def test_scale_in_once_a_worker_was_not_needed_for_as_long_as_its_successors_boot(
    boot_seconds: float,
) -> None:
    steady, now = decide_for(30, boot_seconds=boot_seconds)
    quiet: Sequence[int] = []
    target, memory = steady.target, steady.memory
    for minute in range(1, 30):
        seen = observation(now + minute * 60, target, rate=1.0, boot_seconds=boot_seconds)
        decision = decide(seen, BOUNDS, memory)
        target, memory = decision.target, decision.memory
        quiet = [*quiet, target]
    minutes = min(COOLDOWN_SECONDS, max(MIN_RELEASE_SECONDS, boot_seconds + 60)) / 60
    assert minutes <= quiet.count(steady.target) + 1 <= minutes + 4
    assert quiet[-1] < steady.target / 2
    assert quiet == sorted(quiet, reverse=True)


def test_a_faster_type_needs_fewer() -> None:
    slow, _ = decide_for(30)
    fast, _ = decide_for(30, work_done={"g6.xlarge": WorkDone(60, 120.0)})
    assert fast.target < 0.7 * slow.target


def test_no_scale_in_within_the_cooldown_of_a_scale_out() -> None:
    steady, now = decide_for(30)
    jam = decide(
        observation(now + 60, steady.target, queue=queue(now + 60, ready=2000)), BOUNDS, steady.memory
    )
    assert jam.target > steady.target
    target, memory, targets = jam.target, jam.memory, []
    for minute in range(2, 15):
        decision = decide(observation(now + minute * 60, target, rate=1.0), BOUNDS, memory)
        target, memory = decision.target, decision.memory
        targets.append(target)
    cooldown = int(COOLDOWN_SECONDS // 60)
    assert targets[: cooldown - 1] == [jam.target] * (cooldown - 1)
    assert targets[cooldown] < jam.target


@pytest.mark.parametrize(
    ("changes", "reason"),
    [({"queue": None}, Reason.QUEUE_UNKNOWN), ({"queue": queue(MONDAY)}, Reason.QUEUE_UNKNOWN)],
    ids=["broker down", "an old item"],
)
def test_an_unknown_queue_holds_the_target_and_raises_an_alarm(
    changes: dict[str, object], reason: Reason
) -> None:
    steady, now = decide_for(30)
    target, memory = steady.target, steady.memory
    for minute in range(60, 180):
        decision = decide(observation(now + minute * 60, target, rate=0.0, **changes), BOUNDS, memory)
        target, memory = decision.target, decision.memory
        assert target == steady.target
        assert reason in decision.reasons
        assert decision.is_alarm


def test_stale_throughput_holds_the_target_and_raises_an_alarm() -> None:
    steady, now = decide_for(30)
    stuck, _ = decide_for(
        40, memory=steady.memory, start=now + 60, target=steady.target, work_done={}, rate=1.0
    )
    assert stuck.target == steady.target
    assert Reason.THROUGHPUT_STALE in stuck.reasons


@pytest.mark.parametrize("target", [3, 20, 80])
def test_never_beyond_the_maximum(target: int) -> None:
    decision, _ = decide_for(5, replace(BOUNDS, maximum=10), target=target, rate=40.0)
    assert decision.target == 10


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"rates":1}', "null"])
def test_malformed_text_gives_an_empty_state(text: str) -> None:
    assert parse(text) == ScalingMemory()


def test_after_loss_of_the_state_nothing_scales_in_for_nearly_a_cooldown() -> None:
    for minutes in range(1, int(0.9 * COOLDOWN_SECONDS / 60)):
        lost, _ = decide_for(minutes, rate=0.5)
        assert lost.target == 20
    assert decide_for(int(COOLDOWN_SECONDS / 60) + 2, rate=0.5)[0].target < 20


@pytest.mark.parametrize(("ended", "coming"), [(60.0, 0.0), (0.0, 4.0)])
def test_neither_workers_nor_queue_alone_make_a_service_idle(ended: float, coming: float) -> None:
    allowed = replace(BOUNDS, minimum=0)
    steady, now = decide_for(30, allowed)
    served = {"g6.xlarge": WorkDone(ended, 4 * ended)}
    alone, _ = decide_for(
        60, allowed, steady.memory, now + 60, target=steady.target, rate=coming, work_done=served
    )
    assert alone.target > 0


def test_an_in_flight_request_keeps_one_worker() -> None:
    allowed = replace(BOUNDS, minimum=0)
    steady, now = decide_for(30, allowed)
    target, memory = steady.target, steady.memory
    for minute in range(1, 60):
        at = now + minute * 60
        held = observation(at, target, rate=0.0, queue=queue(at, taken=1, arriving=0.0))
        decision = decide(held, allowed, memory)
        target, memory = decision.target, decision.memory
    assert target == 1


def test_a_queue_state_is_valid_for_three_minutes() -> None:
    young, old = (observation(MONDAY, queue=queue(MONDAY - age)) for age in (170, 190))
    assert Reason.QUEUE_UNKNOWN not in decide(young, BOUNDS, ScalingMemory()).reasons
    assert Reason.QUEUE_UNKNOWN in decide(old, BOUNDS, ScalingMemory()).reasons


def test_a_new_throughput_is_learned_within_hours() -> None:
    day, now = decide_for(600)
    slower, _ = decide_for(
        360, memory=day.memory, start=now + 60, work_done={"g6.xlarge": WorkDone(60, 480.0)}
    )
    assert slower.worker_rate == pytest.approx(0.125, rel=0.1)


def test_scale_to_zero_only_if_allowed_and_idle_and_back_at_once() -> None:
    allowed = replace(BOUNDS, minimum=0)
    steady, now = decide_for(30, allowed)
    soon, _ = decide_for(10, allowed, steady.memory, now + 60, rate=0.0, target=steady.target)
    assert soon.target > 0
    idle, then = decide_for(60, allowed, steady.memory, now + 60, rate=0.0, target=steady.target)
    assert idle.target == 0
    assert idle.reasons == (Reason.IDLE,)
    not_allowed, _ = decide_for(60, BOUNDS, steady.memory, now + 60, rate=0.0, target=steady.target)
    assert not_allowed.target == 1
    asked = observation(then + 60, 0, rate=0.0, queue=queue(then + 60, ready=1, arriving=0.1))
    back = decide(asked, allowed, idle.memory)
    assert back.target >= 1
    assert Reason.WAKE in back.reasons


def test_the_first_requests_of_a_service_start_one_worker() -> None:
    first = decide(observation(MONDAY, 0, work_done={}), replace(BOUNDS, minimum=0), ScalingMemory())
    assert first.target == 1


def test_floors_hold_at_their_times_in_utc() -> None:
    bounds = replace(BOUNDS, floors=(Floor(30, 8 * 60, 18 * 60, frozenset(range(5))),))
    served = {"g6.xlarge": WorkDone(6, 24.0)}
    at_nine, _ = decide_for(30, bounds, start=MONDAY + 9 * 3600, rate=0.1, work_done=served)
    assert at_nine.target == 30
    assert Reason.FLOOR in at_nine.reasons
    assert bounds.floor(MONDAY + 7 * 3600) == 1
    assert bounds.floor(MONDAY + 5 * 86400 + 9 * 3600) == 1


def test_after_a_missing_input_the_cooldown_restarts() -> None:
    steady, now = decide_for(30)
    without_queue, then = decide_for(
        30, memory=steady.memory, start=now + 60, target=steady.target, rate=0.5, queue=None
    )
    during_cooldown, _ = decide_for(
        8, memory=without_queue.memory, start=then + 60, target=without_queue.target, rate=0.5
    )
    assert steady.target == without_queue.target == during_cooldown.target
    after_cooldown, _ = decide_for(
        12, memory=without_queue.memory, start=then + 60, target=without_queue.target, rate=0.5
    )
    assert after_cooldown.target < steady.target


def test_after_an_outage_of_the_scaler_nothing_scales_in() -> None:
    steady, now = decide_for(30)
    late = decide(observation(now + 540, steady.target, rate=0.5), BOUNDS, steady.memory)
    assert late.target == steady.target


def test_a_short_floor_causes_no_reversal() -> None:
    bounds = replace(BOUNDS, floors=(Floor(40, 30, 33),))
    targets = [decide_for(minutes, bounds)[0].target for minutes in (30, 32, 36, 44)]
    assert targets[1:3] == [40, 40]
    assert targets[3] < 40


def test_a_decision_is_idempotent_within_a_minute() -> None:
    steady, now = decide_for(30)
    again = decide(observation(now, steady.target), BOUNDS, steady.memory)
    assert again.target == steady.target
    assert again.memory.arrivals == steady.memory.arrivals
    assert again.memory.profile == steady.memory.profile


def test_the_memory_survives_as_text_and_stays_small() -> None:
    memory = ScalingMemory()
    for minute in range(8 * 1440):
        memory = memory.update(minute_observation := observation(MONDAY + minute * 60), 60).record_decision(
            minute_observation.now, 20
        )
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
    timeline: list[dict[str, object]], minimum: int
) -> None:
    bounds = replace(BOUNDS, minimum=minimum)
    target, memory, up, quiet = 20, ScalingMemory(), -100, 0
    for minute, inputs in enumerate(timeline):
        now = MONDAY + minute * 60
        waiting, arrivals = inputs["waiting"], inputs["arrivals"]
        rate = float(arrivals or 0.0)  # type: ignore[arg-type]
        queue_state = (
            None if waiting is None else queue(now - 600 * bool(inputs["old"]), int(waiting), 0, rate)
        )  # type: ignore[call-overload]
        ended = int(inputs["ended"])  # type: ignore[call-overload]
        decision = decide(
            LoadObservation(
                now=now,
                target=target,
                load=QueueSource(queue_state).load(now),
                ready={"g6.xlarge": int(inputs["ready"])},  # type: ignore[call-overload]
                booting=int(inputs["booting"]),  # type: ignore[call-overload]
                work_done={"g6.xlarge": WorkDone(ended, 4.0 * ended)},
                boot_seconds=180,
            ),
            bounds,
            memory,
        )
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
    steady, now = decide_for(30)
    late = replace(queue(now + 60, ready=1), oldest_seconds=90.0)
    decisions = [
        decide(observation(now + 60, queue=state), BOUNDS, steady.memory)
        for state in (late, replace(late, oldest_seconds=30.0))
    ]
    shorter, longer = (
        decision.memory.staffed_wait.log_factor - steady.memory.staffed_wait.log_factor
        for decision in decisions
    )
    assert shorter < 0 < longer
    learned = [replace(steady.memory, staffed_wait=StaffedWait(log, 4.0)) for log in (-1.5, 1.5)]
    more, fewer = (decide(observation(now + 60), BOUNDS, memory).desired for memory in learned)
    assert more is not None
    assert fewer is not None
    assert more > fewer
