"""A job with a Capacity Block runs in it between its dates, and is out before AWS ends its instances."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from lambdas.core.capacity.capacity_block import HAND_OVER_SECONDS, RELEASE_SECONDS, TAKEN_SECONDS
from lambdas.core.capacity.policies import DEFAULT
from lambdas.core.model import Release, SetDesired, Side
from tests.lambdas.fake_aws import FakeAws
from tests.lambdas.scene import NOW, ROOT, actions, config, controller, only

BLOCK = "cr-0123456789abcdef0"
ENDS = NOW + 24 * 3600
TAKEN = ENDS - TAKEN_SECONDS
HANDED_OVER = TAKEN - HAND_OVER_SECONDS


@pytest.fixture
def job() -> FakeAws:
    fake = FakeAws(
        parameters={
            f"{ROOT}/job/config": config(
                max=2,
                breakBeforeMake=True,
                block=BLOCK,
                policy={"name": DEFAULT, "knobs": {"shortageCost": 2}},
            ),
            f"{ROOT}/job/target": "1",
        }
    )
    fake.add_group("primary", desired=1)
    fake.add_group("fallback")
    state(fake, "active")
    return fake


def state(fake: FakeAws, name: str, ends: float = ENDS) -> None:
    fake.reservations[BLOCK] = {
        "CapacityReservationId": BLOCK,
        "State": name,
        "EndDate": datetime.fromtimestamp(ends, UTC),
    }


def on_spot(fake: FakeAws, now: float = NOW) -> None:
    fake.add_instance("primary", "i-spot", spot=True, launched=now - 900, heartbeat=now - 5, since=now - 300)


def in_block(fake: FakeAws, now: float, *, waits: bool = False) -> None:
    fake.groups["primary"]["DesiredCapacity"] = 0
    fake.groups["fallback"]["DesiredCapacity"] = 1
    fake.add_instance(
        "fallback",
        "i-block",
        spot=False,
        launched=now - 900,
        heartbeat=now - 5,
        since=now - 300,
        state="waiting" if waits else "ready",
    )


def asked(fake: FakeAws, now: float) -> dict[Side, int]:
    done = actions(only(controller(fake, now).run()))
    return {action.side: action.capacity for action in done if isinstance(action, SetDesired)}


def let_go(fake: FakeAws, now: float) -> tuple[str, ...]:
    done = actions(only(controller(fake, now).run()))
    return tuple(i for action in done if isinstance(action, Release) for i in action.instance_ids)


@pytest.mark.parametrize("before", ["scheduled", "payment-pending", "pending"])
def test_before_its_start_the_job_is_where_spot_is(job: FakeAws, before: str) -> None:
    state(job, before)
    on_spot(job)
    assert asked(job, NOW) == {}


def test_at_its_start_the_block_is_asked_and_spot_goes_when_the_successor_waits(job: FakeAws) -> None:
    on_spot(job)
    assert asked(job, NOW) == {Side.FALLBACK: 1}
    in_block(job, NOW, waits=True)
    assert let_go(job, NOW + 60) == ("i-spot",)


def test_as_long_as_it_lasts_nothing_moves(job: FakeAws) -> None:
    now = HANDED_OVER - 60
    in_block(job, now)
    assert actions(only(controller(job, now).run())) == ()


def test_in_time_a_successor_is_sought_and_the_job_stays_until_it_waits(job: FakeAws) -> None:
    in_block(job, HANDED_OVER)
    assert asked(job, HANDED_OVER) == {Side.PRIMARY: 1}
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


def test_without_a_successor_it_is_let_go_with_time_to_save(job: FakeAws) -> None:
    last = TAKEN - RELEASE_SECONDS
    in_block(job, last - 60)
    job.groups["primary"]["DesiredCapacity"] = 1
    assert let_go(job, last - 60) == ()
    assert let_go(job, last) == ("i-block",)
    assert job.groups["fallback"]["DesiredCapacity"] == 0


def test_after_its_end_nothing_is_launched_into_it(job: FakeAws) -> None:
    state(job, "expired")
    assert asked(job, ENDS + 60) == {}


def test_a_block_that_was_extended_lasts_longer(job: FakeAws) -> None:
    in_block(job, HANDED_OVER)
    state(job, "active", ENDS + 24 * 3600)
    assert actions(only(controller(job, HANDED_OVER).run())) == ()


def test_where_it_cannot_be_read_what_is_there_stays(job: FakeAws) -> None:
    in_block(job, NOW)
    job.throttled["describe_capacity_reservations"] = 1
    outcome = only(controller(job).run())
    assert actions(outcome) == ()
    assert [one.partition(" could")[0] for one in outcome.troubles] == [f"Capacity Block '{BLOCK}'"]


def test_where_it_cannot_be_read_nothing_is_launched_into_it(job: FakeAws) -> None:
    on_spot(job)
    job.throttled["describe_capacity_reservations"] = 1
    assert asked(job, NOW) == {}


def test_a_finished_job_needs_no_block(job: FakeAws) -> None:
    job.parameters[f"{ROOT}/job/target"] = "0"
    in_block(job, NOW)
    assert let_go(job, NOW) == ("i-block",)


def test_a_group_without_a_block_is_not_asked_about(aws: FakeAws) -> None:
    only(controller(aws).run())
    assert aws.calls["describe_capacity_reservations"] == 0
