"""Replacement requests and on-premises workers in a whole pass."""

from __future__ import annotations

from collections import Counter

import pytest

from contracts import names
from contracts.group import replacement_requests
from contracts.group.replacement_requests import ReplacementRequest
from contracts.registry import item as registry_item
from contracts.registry.item import STALE_SECONDS, Worker, WorkerState
from lambdas.aws.budget import UNLIMITED
from lambdas.core.capacity.on_premises import COOLDOWN_SECONDS
from tests.fakes.aws import FakeAws, config
from tests.lambdas.single_group import NOW, controller, only

NAME = names.on_premises_partition("inference")
HOSTS = {f"host-{n}": 1 for n in range(5)}


def request_replacement(aws: FakeAws) -> None:
    request = ReplacementRequest("i-0", int(NOW) - 60, "stuck")
    aws.set(replacements=replacement_requests.dump([request]))


def members(aws: FakeAws) -> list[str]:
    return [member["InstanceId"] for member in aws.groups["primary"]["Instances"]]


def test_an_instance_that_does_not_serve_is_terminated_and_the_group_replaces_it(aws: FakeAws) -> None:
    request_replacement(aws)
    controller(aws).run()
    assert members(aws) == ["i-1", "i-2", "i-3"]
    assert aws.groups["primary"]["DesiredCapacity"] == 4
    calls = Counter(aws.calls)
    outcome = only(controller(aws).run())
    assert outcome.decision.actions == ()
    assert outcome.read_errors == ("replacement requests ignored: i-0 (not in the group)",)
    assert aws.calls["terminate_instance_in_auto_scaling_group"] == 1
    assert aws.calls["set_desired_capacity"] == calls["set_desired_capacity"]


def test_a_fleet_keeps_its_target_and_replaces_terminated_instances(aws: FakeAws) -> None:
    fleet = "sfr-1"
    aws.set(config=config(kind="spot-fleet", primary=fleet))
    aws.add_fleet(fleet, 4)
    for instance in aws.instances.values():
        instance["_group"] = fleet
    request_replacement(aws)
    controller(aws).run()
    assert "i-0" not in aws.instances
    assert aws.fleets[fleet]["SpotFleetRequestConfig"]["TargetCapacity"] == 4


@pytest.mark.parametrize("mode", ["paused", "dry-run"])
def test_no_instance_is_replaced_in_these_modes(aws: FakeAws, mode: str) -> None:
    aws.set(control=f'{{"mode": "{mode}"}}')
    request_replacement(aws)
    controller(aws).run()
    assert len(members(aws)) == 4


def hosts(aws: FakeAws, count: int, now: float, state: WorkerState = "ready") -> None:
    aws.rows.clear()
    for host in list(HOSTS)[:count]:
        aws.row(Worker(registry_item.partition(NAME, host), host, 0, NOW - 9e3, now - 5, state))


def test_on_premises_hosts_cost_one_call_and_lower_the_target_after_the_cooldown(aws: FakeAws) -> None:
    controller(aws).run()
    queries = aws.calls["batch_get_item"]
    aws.set(config=config(onPremises=2, onPremisesHosts=HOSTS))
    hosts(aws, 5, NOW)
    assert only(controller(aws).run()).decision.state.group.target == 4
    assert aws.calls["batch_get_item"] == 2 * queries + 1
    later = NOW + COOLDOWN_SECONDS
    hosts(aws, 5, later)
    for row in aws.slots:
        row["heartbeat"]["N"] = str(later)
    assert only(controller(aws, later).run()).decision.state.group.target == 2
    assert len(members(aws)) == 2
    # One late heartbeat does not count as missing; three do.
    assert only(controller(aws, later + STALE_SECONDS - 6).run()).decision.state.group.target == 2
    assert only(controller(aws, later + STALE_SECONDS).run()).decision.state.group.target == 4


@pytest.mark.parametrize("state", ["waiting", "draining"])
def test_hosts_that_do_not_serve_do_not_lower_the_target(aws: FakeAws, state: WorkerState) -> None:
    aws.set(config=config(onPremises=1, onPremisesHosts=HOSTS))
    for now in (NOW, NOW + COOLDOWN_SECONDS):
        hosts(aws, 3, now, state)
        assert only(controller(aws, now).run()).decision.state.group.target == 4


def test_if_hosts_cannot_be_read_the_offset_stays(aws: FakeAws) -> None:
    aws.set(config=config(onPremises=1, onPremisesHosts=HOSTS))
    for now in (NOW, NOW + COOLDOWN_SECONDS):
        hosts(aws, 3, now)
        controller(aws, now).run()
    assert len(members(aws)) == 1
    later = controller(aws, now + 60)
    reader = later.observer.registry
    original = type(reader).read_on_premises

    def fails(*_: object) -> None:
        aws.throttled["batch_get_item"] = 1
        return original(reader, "inference", HOSTS, UNLIMITED)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(reader), "read_on_premises", fails)
        outcome = only(later.run())
    assert outcome.decision.state.group.target == 1
    assert outcome.is_partial
    assert any("on-premises workers not read" in error for error in outcome.read_errors)
