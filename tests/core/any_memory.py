"""A controller's memory with any values that can be stored."""

from __future__ import annotations

import random
from typing import Any

from lambdas.core.capacity.history import History, PoolRecord
from lambdas.core.capacity.memory import Memory, dump, parse
from lambdas.core.capacity.on_premises import OnPremisesOffset
from lambdas.core.deadline.experience import SampleStatistics
from lambdas.core.deadline.record import JobRecord
from lambdas.core.model import GroupRole, PurchaseOption


def any_time(draw: random.Random, now: float) -> float:
    """Return any time: now, the past, the future, or nonsense."""
    near, far = draw.uniform(-7200, 7200), draw.uniform(-1e7, 1e7)
    return draw.choice((0.0, 1.0, now, now + near, now + far, now - 1e9, now + 1e9, 1e15))


def any_number(draw: random.Random) -> float:
    """Return any number of at least 0."""
    return draw.choice((0.0, 0.5, 1.0, 20.0, draw.uniform(0, 1e4), 1e9, 1e100))


def any_memory(draw: random.Random, now: float, instances: list[str]) -> Memory:
    """Return any memory that can be stored, and read again."""

    def times() -> dict[str, float]:
        some = draw.sample(instances, draw.randint(0, len(instances)))
        return {name: any_time(draw, now) for name in (*some, "i-other")}

    def maybe() -> float | None:
        return any_time(draw, now) if draw.random() < 0.7 else None

    pools = {
        f"g5.xlarge@{zone}": PoolRecord(
            maybe(), any_number(draw), any_number(draw), any_number(draw), maybe()
        )
        for zone in "abc"
        if draw.random() < 0.8
    }
    numbers: list[Any] = [any_number(draw) for _ in range(4)]
    by_instance = {name: f"g5.xlarge@{draw.choice('abc')}" for name in instances if draw.random() < 0.5}
    history = History(pools, by_instance, draw.random() < 0.5, maybe(), *numbers)
    rate, delay = draw.choice((0.0, 0.001, 0.05, 10.0)), draw.uniform(0, 1e5)
    job = JobRecord(
        step=draw.randint(0, 100),
        steps=10_000,
        reported_at=any_time(draw, now),
        rate=rate,
        best_rate=2 * rate,
        launch_delays=SampleStatistics(40, 0.0, delay, 40 * delay),
        on_demand_requested_at=maybe(),
    )
    memory = Memory(
        termination_deadlines=times(),
        at_risk=times(),
        retiring=times(),
        termination_requests=times(),
        replacement_times=times(),
        boots={
            option: tuple(any_number(draw) for _ in range(draw.randint(0, 20))) for option in PurchaseOption
        },
        booted=frozenset(name for name in instances if draw.random() < 0.5),
        not_reporting=times(),
        requested_capacity={role: (draw.randint(0, 20), any_time(draw, now)) for role in GroupRole},
        active_alarms=frozenset(draw.sample(("on-demand-only", "deadline-unknown"), 1)),
        history=history,
        job=job,
        on_premises_offset=OnPremisesOffset(draw.randint(0, 9), draw.randint(0, 9), maybe()),
        without_spot_since=maybe(),
    )
    return parse(dump(memory)) if draw.random() < 0.9 else Memory()
