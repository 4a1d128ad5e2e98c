"""What the controller remembers, for how long, and how it is stored."""

from __future__ import annotations

import json
import math
import random
from dataclasses import replace

import pytest

from lambdas.core.capacity.availability import decide
from lambdas.core.capacity.memory import (
    BOOT_SAMPLES,
    DEFAULT_BOOT_SECONDS,
    MARK_RETENTION_SECONDS,
    TERMINATION_SECONDS,
    Memory,
    apply_events,
    dump,
    parse,
    update_memory,
)
from lambdas.core.capacity.policies import build as build_policy
from lambdas.core.events import InterruptionNotice
from lambdas.core.health import memory as health_memory
from lambdas.core.health.memory import MAX_PENDING_SYMPTOMS, HealthMemory, PendingSymptom
from lambdas.core.model import PurchaseOption
from lambdas.core.rollout.state import HostProgress, Rollout
from tests.core.build import NOW, observe, on_demand, spot


def test_boot_times_are_learned_once_for_each_instance_and_bounded() -> None:
    memory = Memory()
    fleet = [on_demand(f"o{n}", age=600) for n in range(BOOT_SAMPLES + 5)]
    for _ in range(3):
        memory = update_memory(memory, observe(*fleet, spot("s"), spot("boots", ready=False)), NOW)
    assert memory.boots == {PurchaseOption.ON_DEMAND: (60.0,) * BOOT_SAMPLES, PurchaseOption.SPOT: (180.0,)}
    assert memory.boot_seconds(PurchaseOption.ON_DEMAND) == 60.0
    assert Memory().boot_seconds(PurchaseOption.ON_DEMAND) == DEFAULT_BOOT_SECONDS
    assert Memory(boots={PurchaseOption.SPOT: (100.0, 200.0)}).boot_seconds(PurchaseOption.SPOT) == 150.0


def test_a_worker_started_again_on_an_old_instance_is_no_boot() -> None:
    restarted = replace(on_demand("o", age=7200), ready_since=NOW - 10)
    assert update_memory(Memory(), observe(restarted), NOW).boots == {}


def test_marks_outlive_a_stale_answer_and_are_then_forgotten() -> None:
    memory = apply_events(Memory(), [InterruptionNotice("i-1", NOW + 120)], NOW)
    # Whom AWS has not taken by then it does not take.
    for seen in (observe(), observe(spot("i-1"))):
        for seconds, marked in ((MARK_RETENTION_SECONDS - 1, True), (MARK_RETENTION_SECONDS + 1, False)):
            later = update_memory(memory, seen, NOW + 120 + seconds)
            assert ("i-1" in later.termination_deadlines) is marked


def test_a_failed_termination_is_detected() -> None:
    memory, seen = Memory(termination_requests={"o": NOW}), observe(on_demand("o"))
    for seconds, left in ((TERMINATION_SECONDS - 1, {"o": NOW}), (TERMINATION_SECONDS, {})):
        assert update_memory(memory, seen, NOW + seconds).termination_requests == left


def test_an_instance_that_returns_from_the_warm_pool_is_not_terminating() -> None:
    memory = Memory(termination_requests={"o": NOW})
    # What is not described yet has no launch time of its own.
    for described, left in ((True, {}), (False, {"o": NOW})):
        again = replace(on_demand("o"), launched_at=NOW + 200, is_described=described)
        assert update_memory(memory, observe(again), NOW + 200).termination_requests == left


def test_the_earlier_of_two_deadlines_counts() -> None:
    memory = apply_events(Memory(), [InterruptionNotice("i-1", NOW + 120)], NOW)
    later = update_memory(memory, observe(spot("i-1", deadline=NOW + 100)), NOW)
    assert later.termination_deadlines == {"i-1": NOW + 100}


def test_the_memory_of_the_largest_group_fits_into_an_item() -> None:
    draw = random.Random(1)
    fleet = [spot(f"i-{draw.getrandbits(68):017x}") for _ in range(10_000)]
    memory = update_memory(Memory(), observe(*fleet), NOW)
    text = dump(memory)
    assert len(text) < 400_000
    assert parse(text) == memory
    with pytest.raises(ValueError, match="memory cannot be decompressed"):
        parse(text[: len("zlib:") + 2000])


def test_the_health_checkers_memory_of_the_largest_service_fits_into_an_item() -> None:
    draw, version = random.Random(1), "sha256:" + "a" * 64
    ids = [f"i-{draw.getrandbits(68):017x}" for _ in range(5_000)]
    hosts = {name: HostProgress(version, NOW + draw.random() * 900, 1, is_verified=True) for name in ids}
    symptoms = {f"crashing:{name}/0": PendingSymptom(2.0, NOW) for name in ids[:MAX_PENDING_SYMPTOMS]}
    memory = HealthMemory(pending_symptoms=symptoms, rollout=Rollout(hosts=hosts))
    text = health_memory.dump(memory)
    assert len(text) < 400_000
    assert health_memory.parse(text) == memory


def broken(key: str, value: object) -> str:
    """A memory with one value that nobody wrote."""
    raw = json.loads(dump(Memory(termination_deadlines={"i-1": NOW})))
    *path, last = key.split(".")
    place = raw
    for step in path:
        place = place[step]
    place[last] = value
    return json.dumps(raw)


VALUES = (None, "text", 5, [1], {"i-1": "soon"}, {"i-1": None}, {"i-1": math.inf}, {"i-1": True}, [["i-1"]])
KEYS = [*json.loads(dump(Memory())), *(f"history.{key}" for key in json.loads(dump(Memory()))["history"])]


@pytest.mark.parametrize("key", KEYS)
def test_a_memory_with_a_wrong_value_is_refused_or_harmless(key: str) -> None:
    """One that were believed would fail each pass, and never be written over."""
    seen = observe(spot("i-1"), on_demand("o"))
    for value in VALUES:
        try:
            memory = parse(broken(key, value))
        except ValueError:
            continue
        decision = decide(seen, build_policy("expected-cost"), memory, NOW)
        assert parse(dump(decision.memory)) == decision.memory, value


@pytest.mark.parametrize("text", ["[" * 100_000, '{"format":' + "9" * 5_000 + "}"])
def test_a_memory_that_python_cannot_parse_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match=r"stored state|digits"):
        parse(text)


def test_a_termination_request_from_the_future_expires() -> None:
    memory = Memory(termination_requests={"o": NOW + 10 * TERMINATION_SECONDS})
    assert update_memory(memory, observe(on_demand("o")), NOW).termination_requests == {}


@pytest.mark.parametrize("text", ["[]", '"x"', '{"format":0}', "{}"])
def test_memory_of_another_format_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="stored state must have format"):
        parse(text)
