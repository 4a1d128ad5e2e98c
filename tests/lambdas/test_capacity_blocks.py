"""A job with a Capacity Block runs in it until shortly before AWS terminates its instances."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from contracts.registry.item import WorkerState
from lambdas.core.capacity.capacity_block import (
    HANDOVER_LEAD_SECONDS,
    SAVE_LEAD_SECONDS,
    TERMINATION_LEAD_SECONDS,
)
from lambdas.core.capacity.policies import DEFAULT
from lambdas.core.model import GroupRole, SetDesired, TerminateInstances
from tests.fakes.aws import FakeAws
from tests.lambdas.single_group import NOW, actions, add_ready, controller, declared, only

BLOCK = "cr-0123456789abcdef0"
ENDS = NOW + 24 * 3600
TAKEN = ENDS - TERMINATION_LEAD_SECONDS
HANDED_OVER = TAKEN - HANDOVER_LEAD_SECONDS


@pytest.fixture
def job() -> FakeAws:
    policy = {"name": DEFAULT, "parameters": {"shortageCost": 2}}
    fake = declared(1, 1, "job", max=2, breakBeforeMake=True, block=BLOCK, policy=policy)
    state(fake, "active")
    return fake


def state(fake: FakeAws, name: str, ends: float = ENDS) -> None:
    fake.reservations[BLOCK] = {
        "CapacityReservationId": BLOCK,
        "State": name,
        "EndDate": datetime.fromtimestamp(ends, UTC),
    }


def in_block(fake: FakeAws, now: float, *, state: WorkerState = "ready") -> None:
    fake.groups["primary"]["DesiredCapacity"] = 0
    fake.groups["fallback"]["DesiredCapacity"] = 1
    times = {"launched": now - 900, "heartbeat": now - 5, "since": now - 300}
    fake.add_instance("fallback", "i-block", spot=False, state=state, **times)


def asked(fake: FakeAws, now: float) -> dict[GroupRole, int]:
    done = actions(only(controller(fake, now).run()))
    return {action.group_role: action.capacity for action in done if isinstance(action, SetDesired)}


def let_go(fake: FakeAws, now: float) -> tuple[str, ...]:
    done = actions(only(controller(fake, now).run()))
    return tuple(i for action in done if isinstance(action, TerminateInstances) for i in action.instance_ids)


@pytest.mark.parametrize("before", ["scheduled", "payment-pending", "pending"])
def test_before_the_start_the_job_runs_on_spot(job: FakeAws, before: str) -> None:
    state(job, before)
    add_ready(job, "primary", "i-spot")
    assert asked(job, NOW) == {}


def test_at_the_start_the_block_is_used_and_spot_ends_when_the_successor_waits(job: FakeAws) -> None:
    add_ready(job, "primary", "i-spot")
    assert asked(job, NOW) == {GroupRole.FALLBACK: 1}
    in_block(job, NOW, state="waiting")
    assert let_go(job, NOW + 60) == ("i-spot",)


def test_during_the_block_nothing_changes(job: FakeAws) -> None:
    now = HANDED_OVER - 60
    in_block(job, now)
    assert actions(only(controller(job, now).run())) == ()


def test_before_the_end_a_successor_starts_and_the_job_stays_until_it_waits(job: FakeAws) -> None:
    in_block(job, HANDED_OVER)
    assert asked(job, HANDED_OVER) == {GroupRole.PRIMARY: 1}
    assert let_go(job, HANDED_OVER + 60) == ()
    now = HANDED_OVER + 600
    job.slots.clear()
    job.groups["fallback"]["Instances"].clear()
    in_block(job, now)
    job.groups["primary"]["DesiredCapacity"] = 1
    job.add_instance(
        "primary", "i-next", spot=True, launched=now - 300, heartbeat=now - 5, since=now - 60, state="waiting"
    )
    assert let_go(job, now) == ("i-block",)


def test_without_a_successor_it_is_terminated_with_time_to_save(job: FakeAws) -> None:
    last = TAKEN - SAVE_LEAD_SECONDS
    in_block(job, last - 60)
    job.groups["primary"]["DesiredCapacity"] = 1
    assert let_go(job, last - 60) == ()
    assert let_go(job, last) == ("i-block",)
    assert job.groups["fallback"]["DesiredCapacity"] == 0


def test_after_the_end_nothing_is_launched_into_the_block(job: FakeAws) -> None:
    state(job, "expired")
    assert asked(job, ENDS + 60) == {}


def test_an_extended_block_is_used_longer(job: FakeAws) -> None:
    in_block(job, HANDED_OVER)
    state(job, "active", ENDS + 24 * 3600)
    assert actions(only(controller(job, HANDED_OVER).run())) == ()


def test_an_unreadable_block_keeps_its_capacity(job: FakeAws) -> None:
    in_block(job, NOW)
    job.throttled["describe_capacity_reservations"] = 1
    outcome = only(controller(job).run())
    assert actions(outcome) == ()
    assert [error.partition(" not read")[0] for error in outcome.read_errors] == [f"Capacity Block '{BLOCK}'"]


def test_nothing_is_launched_into_an_unreadable_block(job: FakeAws) -> None:
    add_ready(job, "primary", "i-spot")
    job.throttled["describe_capacity_reservations"] = 1
    assert asked(job, NOW) == {}


def test_a_finished_job_needs_no_block(job: FakeAws) -> None:
    job.set("job", target="0")
    in_block(job, NOW)
    assert let_go(job, NOW) == ("i-block",)


def test_a_group_without_a_block_makes_no_call(aws: FakeAws) -> None:
    only(controller(aws).run())
    assert aws.calls["describe_capacity_reservations"] == 0
