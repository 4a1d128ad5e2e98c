"""Wishes and workers on premises through the whole pass: what is read, what AWS is asked."""

from __future__ import annotations

from collections import Counter

import pytest

from contracts import names
from contracts.group import replacement_requests as wishes
from contracts.group.replacement_requests import Wish
from contracts.registry import item as registry_item
from contracts.registry.item import STALE_SECONDS, Worker, WorkerState
from lambdas.aws.budget import UNLIMITED
from lambdas.core.capacity.on_premises import COOLDOWN_SECONDS
from tests.lambdas.fake_aws import FakeAws
from tests.lambdas.scene import NOW, ROOT, config, controller, only

PARTITION = names.on_premises_partition("inference")


def wish(aws: FakeAws, *instance_ids: str, reason: str = "stuck") -> None:
    told = [Wish(instance_id, int(NOW) - 60, reason) for instance_id in instance_ids]
    aws.parameters[f"{ROOT}/inference/wishes"] = wishes.dump(told)


def members(aws: FakeAws, name: str = "primary") -> list[str]:
    return [member["InstanceId"] for member in aws.groups[name]["Instances"]]


def test_one_that_does_not_serve_is_ended_and_the_group_fills_up_by_itself(aws: FakeAws) -> None:
    wish(aws, "i-0")
    controller(aws).run()
    assert members(aws) == ["i-1", "i-2", "i-3"]
    assert aws.groups["primary"]["DesiredCapacity"] == 4
    calls = Counter(aws.calls)
    outcome = only(controller(aws).run())
    assert outcome.decision.actions == ()
    assert outcome.troubles == ("wishes ignored: i-0 not in the group",)
    assert aws.calls["terminate_instance_in_auto_scaling_group"] == 1
    assert aws.calls["set_desired_capacity"] == calls["set_desired_capacity"]


def test_one_that_serves_stays_until_its_successor_is_ready(aws: FakeAws) -> None:
    wish(aws, "i-0", reason="xid")
    controller(aws).run()
    assert (len(members(aws)), aws.groups["fallback"]["DesiredCapacity"]) == (4, 1)
    aws.add_instance("fallback", "i-od", spot=False, launched=NOW, heartbeat=NOW + 60)
    controller(aws, NOW + 60).run()
    assert members(aws) == ["i-1", "i-2", "i-3"]


def test_a_fleet_keeps_its_target_and_launches_what_is_terminated(aws: FakeAws) -> None:
    fleet = "sfr-1"
    aws.parameters[f"{ROOT}/inference/config"] = config(kind="spot-fleet", primary=fleet)
    aws.add_fleet(fleet, 4)
    for instance in aws.instances.values():
        instance["_group"] = fleet
    wish(aws, "i-0")
    controller(aws).run()
    assert "i-0" not in aws.instances
    assert aws.fleets[fleet]["SpotFleetRequestConfig"]["TargetCapacity"] == 4


@pytest.mark.parametrize("mode", ["paused", "dry-run"])
def test_nobody_is_ended_where_people_said_so(aws: FakeAws, mode: str) -> None:
    aws.parameters[f"{ROOT}/inference/control"] = f'{{"mode": "{mode}"}}'
    wish(aws, "i-0")
    controller(aws).run()
    assert len(members(aws)) == 4


def test_a_job_has_no_wishes(aws: FakeAws) -> None:
    aws.parameters[f"{ROOT}/inference/config"] = config(breakBeforeMake=True)
    wish(aws, "i-0")
    assert only(controller(aws).run()).troubles == ("wishes ignored: i-0 of a job",)
    assert len(members(aws)) == 4


def hosts(aws: FakeAws, count: int, now: float, state: WorkerState = "ready") -> None:
    aws.elsewhere = [
        registry_item.dump(Worker(PARTITION, f"host-{n}", 0, NOW - 9e3, now - 5, state)) for n in range(count)
    ]


def test_hosts_on_premises_cost_one_call_and_lower_the_target_after_a_while(aws: FakeAws) -> None:
    controller(aws).run()
    queries = aws.calls["query"]
    aws.parameters[f"{ROOT}/inference/config"] = config(onPremises=2)
    hosts(aws, 5, NOW)
    assert only(controller(aws).run()).decision.situation.group.target == 4
    assert aws.calls["query"] == 2 * queries + 1
    later = NOW + COOLDOWN_SECONDS
    hosts(aws, 5, later)
    for row in aws.slots:
        row["heartbeat"]["N"] = str(later)
    assert only(controller(aws, later).run()).decision.situation.group.target == 2
    assert len(members(aws)) == 2
    # One late heartbeat is none that is missing; three are.
    assert only(controller(aws, later + STALE_SECONDS - 6).run()).decision.situation.group.target == 2
    assert only(controller(aws, later + STALE_SECONDS).run()).decision.situation.group.target == 4


@pytest.mark.parametrize("state", ["waiting", "draining"])
def test_hosts_that_do_not_serve_stand_in_for_nobody(aws: FakeAws, state: WorkerState) -> None:
    aws.parameters[f"{ROOT}/inference/config"] = config(onPremises=1)
    for now in (NOW, NOW + COOLDOWN_SECONDS):
        hosts(aws, 3, now, state)
        assert only(controller(aws, now).run()).decision.situation.group.target == 4


def test_where_they_cannot_be_read_what_was_known_of_them_stays(aws: FakeAws) -> None:
    aws.parameters[f"{ROOT}/inference/config"] = config(onPremises=1)
    for now in (NOW, NOW + COOLDOWN_SECONDS):
        hosts(aws, 3, now)
        controller(aws, now).run()
    assert len(members(aws)) == 1
    found = controller(aws, now + 60)
    reader = found.observer.registry
    seen = type(reader).elsewhere

    def fails(*_: object) -> None:
        aws.throttled["query"] = 1
        return seen(reader, "inference", UNLIMITED)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(reader), "elsewhere", fails)
        outcome = only(found.run())
    assert outcome.decision.situation.group.target == 1
    assert outcome.is_partial
    assert any("workers on premises could not be read" in told for told in outcome.troubles)
