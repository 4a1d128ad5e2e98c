"""The scaler's decisions: what it asks for, and that nothing missing ever makes it ask for less."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.group.scaling_settings import Bounds, Floor
from contracts.registry.queue_state import Backlog
from lambdas.core.scaling import decide
from lambdas.core.scaling.decide import ScalingDecision
from lambdas.core.scaling.memory import COOLDOWN, ScalingMemory, dump, parse
from lambdas.core.scaling.model import LoadObservation, Reason, WorkDone
from lambdas.core.scaling.staffed_wait import StaffedWait

MONDAY = 4 * 86400.0
BOUNDS = Bounds(wait_seconds=60, minimum=1, maximum=50)
SERVED = {"g6.xlarge": WorkDone(60, 240.0)}


def queue(now: float, ready: int = 0, taken: int = 0, arriving: float = 4.0) -> Backlog:
    return Backlog(at=now, ready=ready, taken=taken, oldest=0, arriving=arriving, leaving=arriving, readers=1)


def seen(now: float, target: int = 20, rate: float | None = 4.0, **changes: object) -> LoadObservation:
    usual = LoadObservation(
        now=now,
        target=target,
        queue=queue(now, arriving=rate or 0.0),
        ready={"g6.xlarge": target},
        booting=0,
        served=SERVED if rate else {},
        boot_seconds=180,
    )
    return replace(usual, **changes)  # type: ignore[arg-type]


def after(
    minutes: int,
    bounds: Bounds = BOUNDS,
    memory: ScalingMemory | None = None,
    begin: float = MONDAY,
    **changes: object,
) -> tuple[ScalingDecision, float]:
    """Return the last decision of so many minutes, each target carried out at once, and its time."""
    target, memory = int(changes.pop("target", 20)), memory or ScalingMemory()  # type: ignore[call-overload]
    for minute in range(minutes):
        now = begin + minute * 60
        decision = decide(seen(now, target, **changes), bounds, memory)  # type: ignore[arg-type]
        target, memory = decision.target, decision.memory
    return decision, now


def test_the_load_decides() -> None:
    decision, _ = after(30)
    # 4 requests a second of 4 s each keep 16 workers busy; doubt of a tenth and the wait allowed do the rest
    assert 17 <= decision.target <= 22
    assert decision.reasons == (Reason.LOAD,)


def test_where_the_next_worker_is_an_on_demand_one_more_are_late() -> None:
    own = replace(BOUNDS, wait_seconds=5)
    usual, _ = after(30, own)
    scarce, _ = after(30, own, scarce=True)
    # never fewer than the load keeps busy
    assert 16 <= scarce.target < usual.target
    assert (scarce.reasons, usual.reasons) == ((Reason.SCARCE,), (Reason.LOAD,))


def test_a_faster_type_needs_fewer() -> None:
    slow, _ = after(30)
    fast, _ = after(30, served={"g6.xlarge": WorkDone(60, 120.0)})
    assert fast.target < 0.7 * slow.target


def test_a_jam_is_answered_at_once_and_what_boots_counts() -> None:
    calm, now = after(30)
    jam = seen(now + 60, calm.target, queue=queue(now + 60, ready=2000))
    more = decide(jam, BOUNDS, calm.memory)
    assert more.target > calm.target + 5
    booting = decide(replace(jam, booting=20), BOUNDS, calm.memory)
    assert booting.target < more.target


def test_workers_on_premises_come_first() -> None:
    alone, _ = after(30)
    helped, _ = after(30, elsewhere={"g6.xlarge": 6})
    assert helped.target == alone.target - 6
    enough, _ = after(30, bounds=replace(BOUNDS, minimum=0), elsewhere={"g6.xlarge": 40})
    assert enough.target == 0


def test_fewer_only_after_the_whole_cooldown() -> None:
    calm, now = after(30)
    quiet: Sequence[int] = []
    target, memory = calm.target, calm.memory
    for minute in range(1, 30):
        decision = decide(seen(now + minute * 60, target, rate=1.0), BOUNDS, memory)
        target, memory = decision.target, decision.memory
        quiet = [*quiet, target]
    kept = quiet.count(calm.target)
    assert COOLDOWN / 60 <= kept + 1 <= COOLDOWN / 60 + 4
    assert quiet[-1] < calm.target / 2
    assert quiet == sorted(quiet, reverse=True)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"queue": None}, Reason.QUEUE_UNKNOWN),
        ({"queue": queue(MONDAY)}, Reason.QUEUE_UNKNOWN),
    ],
    ids=["broker down", "an old row"],
)
def test_what_is_missing_holds_the_target_and_rings(changes: dict[str, object], reason: Reason) -> None:
    calm, now = after(30)
    target, memory = calm.target, calm.memory
    for minute in range(60, 180):
        decision = decide(replace(seen(now + minute * 60, target, rate=0.0), **changes), BOUNDS, memory)  # type: ignore[arg-type]
        target, memory = decision.target, decision.memory
        assert target == calm.target
        assert reason in decision.reasons
        assert decision.rings


def test_requests_that_come_while_none_end_hold_the_target_and_ring() -> None:
    calm, now = after(30)
    stuck, _ = after(40, memory=calm.memory, begin=now + 60, target=calm.target, served={}, rate=1.0)
    assert stuck.target == calm.target
    assert Reason.THROUGHPUT_STALE in stuck.reasons


def test_a_memory_that_is_lost_lets_nobody_go_for_nearly_a_cooldown() -> None:
    for minutes in range(1, int(0.9 * COOLDOWN / 60)):
        lost, _ = after(minutes, rate=0.5)
        assert lost.target == 20
    assert after(int(COOLDOWN / 60) + 2, rate=0.5)[0].target < 20


@pytest.mark.parametrize(("ended", "coming"), [(60.0, 0.0), (0.0, 4.0)])
def test_neither_workers_nor_queue_alone_say_silence(ended: float, coming: float) -> None:
    allowed = replace(BOUNDS, minimum=0)
    calm, now = after(30, allowed)
    served = {"g6.xlarge": WorkDone(ended, 4 * ended)}
    alone, _ = after(60, allowed, calm.memory, now + 60, target=calm.target, rate=coming, served=served)
    assert alone.target > 0


def test_a_request_that_is_still_with_a_worker_keeps_one() -> None:
    allowed = replace(BOUNDS, minimum=0)
    calm, now = after(30, allowed)
    target, memory = calm.target, calm.memory
    for minute in range(1, 60):
        at = now + minute * 60
        held = seen(at, target, rate=0.0, queue=queue(at, taken=1, arriving=0.0))
        decision = decide(held, allowed, memory)
        target, memory = decision.target, decision.memory
    assert target == 1


def test_a_row_of_the_queue_counts_for_three_minutes() -> None:
    young, old = (seen(MONDAY, queue=queue(MONDAY - age)) for age in (170, 190))
    assert Reason.QUEUE_UNKNOWN not in decide(young, BOUNDS, ScalingMemory()).reasons
    assert Reason.QUEUE_UNKNOWN in decide(old, BOUNDS, ScalingMemory()).reasons


def test_what_workers_do_is_learned_anew_within_hours() -> None:
    day, now = after(600)
    slower, _ = after(360, memory=day.memory, begin=now + 60, served={"g6.xlarge": WorkDone(60, 480.0)})
    assert slower.each == pytest.approx(0.125, rel=0.1)


def test_to_zero_only_where_allowed_and_after_long_silence_and_back_at_once() -> None:
    allowed = replace(BOUNDS, minimum=0)
    calm, now = after(30, allowed)
    soon, _ = after(10, allowed, calm.memory, now + 60, rate=0.0, target=calm.target)
    assert soon.target > 0
    gone, then = after(60, allowed, calm.memory, now + 60, rate=0.0, target=calm.target)
    assert gone.target == 0
    assert gone.reasons == (Reason.IDLE,)
    kept, _ = after(60, BOUNDS, calm.memory, now + 60, rate=0.0, target=calm.target)
    assert kept.target == 1
    asked = seen(then + 60, 0, rate=0.0, queue=queue(then + 60, ready=1, arriving=0.1))
    back = decide(asked, allowed, gone.memory)
    assert back.target >= 1
    assert Reason.WAKE in back.reasons


def test_somebody_asks_a_service_that_never_worked() -> None:
    first = decide(seen(MONDAY, 0, served={}), replace(BOUNDS, minimum=0), ScalingMemory())
    assert first.target == 1


def test_floors_hold_at_their_times_in_utc() -> None:
    bounds = replace(BOUNDS, floors=(Floor(30, 8 * 60, 18 * 60, frozenset(range(5))),))
    at_nine, _ = after(30, bounds, begin=MONDAY + 9 * 3600, rate=0.1)
    assert at_nine.target == 30
    assert Reason.FLOOR in at_nine.reasons
    assert bounds.floor(MONDAY + 7 * 3600) == 1
    assert bounds.floor(MONDAY + 5 * 86400 + 9 * 3600) == 1


def test_after_something_was_missing_the_cooldown_begins_anew() -> None:
    calm, now = after(30)
    blind, then = after(30, memory=calm.memory, begin=now + 60, target=calm.target, rate=0.5, queue=None)
    kept, _ = after(8, memory=blind.memory, begin=then + 60, target=blind.target, rate=0.5)
    assert calm.target == blind.target == kept.target
    gone, _ = after(12, memory=blind.memory, begin=then + 60, target=blind.target, rate=0.5)
    assert gone.target < calm.target


def test_a_scaler_that_did_not_run_lets_nobody_go() -> None:
    calm, now = after(30)
    late = decide(seen(now + 540, calm.target, rate=0.5), BOUNDS, calm.memory)
    assert late.target == calm.target


def test_a_short_floor_is_no_reason_to_swing() -> None:
    bounds = replace(BOUNDS, floors=(Floor(40, 30, 33),))
    targets = [after(minutes, bounds)[0].target for minutes in (30, 32, 36, 44)]
    assert targets[1:3] == [40, 40]
    assert targets[3] < 40


@pytest.mark.parametrize("target", [3, 20, 80])
def test_never_beyond_the_maximum(target: int) -> None:
    decision, _ = after(5, replace(BOUNDS, maximum=10), target=target, rate=40.0)
    assert decision.target == 10


def test_the_same_minute_again_says_the_same() -> None:
    calm, now = after(30)
    again = decide(seen(now, calm.target), BOUNDS, calm.memory)
    assert again.target == calm.target
    assert again.memory.arrivals == calm.memory.arrivals
    assert again.memory.profile == calm.memory.profile


def test_the_memory_survives_as_text_and_stays_small() -> None:
    memory = ScalingMemory()
    for minute in range(8 * 1440):
        memory = memory.seen(one := seen(MONDAY + minute * 60), one.queue, 60).ordered(one.now, 20)
    text = dump(memory)
    assert len(text) < 10_000
    read = parse(text)
    assert read.arrivals == memory.arrivals
    assert read.staffed == memory.staffed
    assert read.wanted == memory.wanted
    assert read.profile.rates == pytest.approx(memory.profile.rates, rel=1e-3)
    assert dump(read) == text


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"rates":1}', "null"])
def test_a_memory_that_cannot_be_read_begins_anew(text: str) -> None:
    assert parse(text) == ScalingMemory()


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
def test_whatever_is_seen_the_target_is_within_its_bounds_and_never_lower_for_what_is_missing(
    story: list[dict[str, object]], minimum: int
) -> None:
    bounds = replace(BOUNDS, minimum=minimum)
    target, memory, up, quiet = 20, ScalingMemory(), -100, 0
    for minute, one in enumerate(story):
        now = MONDAY + minute * 60
        waiting, arrivals = one["waiting"], one["arrivals"]
        rate = float(arrivals or 0.0)  # type: ignore[arg-type]
        told = None if waiting is None else queue(now - 600 * bool(one["old"]), int(waiting), 0, rate)  # type: ignore[call-overload]
        ended = int(one["ended"])  # type: ignore[call-overload]
        decision = decide(
            LoadObservation(
                now=now,
                target=target,
                queue=told,
                ready={"g6.xlarge": int(one["ready"])},  # type: ignore[call-overload]
                booting=int(one["booting"]),  # type: ignore[call-overload]
                served={"g6.xlarge": WorkDone(ended, 4.0 * ended)},
                boot_seconds=180,
            ),
            bounds,
            memory,
        )
        quiet = quiet + 1 if arrivals == 0 and told is not None and not one["old"] and waiting == 0 else 0
        assert minimum <= decision.target <= bounds.maximum
        if decision.rings:
            assert decision.target >= target
        if decision.target < target:
            assert minute - up >= COOLDOWN / 60
        if decision.target == 0 < target:
            assert quiet >= 10
        if decision.target > target:
            up = minute
        target, memory = decision.target, decision.memory


def test_requests_that_were_late_are_answered_with_more_workers_and_punctual_ones_with_fewer() -> None:
    calm, now = after(30)
    late = replace(queue(now + 60, ready=1), oldest=90.0)
    told = [decide(seen(now + 60, queue=q), BOUNDS, calm.memory) for q in (late, replace(late, oldest=30.0))]
    shorter, longer = (one.memory.staffed.log - calm.memory.staffed.log for one in told)
    assert shorter < 0 < longer
    learned = [replace(calm.memory, staffed=StaffedWait(log, 4.0)) for log in (-1.5, 1.5)]
    more, fewer = (decide(seen(now + 60), BOUNDS, memory).wanted for memory in learned)
    assert more is not None
    assert fewer is not None
    assert more > fewer
