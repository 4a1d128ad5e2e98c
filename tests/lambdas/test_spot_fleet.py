"""A Spot Fleet of type maintain as primary group."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from contracts.registry import item as registry_item
from lambdas.core.capacity.memory import SETTLE_SECONDS
from lambdas.core.events import InterruptionNotice
from lambdas.core.model import Alarm, GroupRole, SetDesired
from tests.fakes.aws import FakeAws, config, worker
from tests.lambdas.single_group import NOW, actions, add_ready, controller, only
from tests.oracles.shares import SHARES, on_demand_by_awss_rule

FLEET = "sfr-73fbd2ce-aa30-494c-8788-1cee4EXAMPLE"


@pytest.fixture
def aws() -> FakeAws:
    fake = FakeAws()
    fake.set(config=mixed(), target="4")
    fake.add_fleet(FLEET, target=4, on_demand=1)
    fake.add_group("fallback")
    add_ready(fake, FLEET, "i-0", spot=False)
    add_ready(fake, FLEET, "i-1", "i-2", "i-3")
    return fake


def mixed(**changes: Any) -> str:
    """Return the settings of a fleet with an On-Demand base of one."""
    return config(**{"kind": "spot-fleet", "primary": FLEET, "base": 1, **changes})


def targets(aws: FakeAws) -> tuple[int, int]:
    settings: dict[str, Any] = aws.fleets[FLEET]["SpotFleetRequestConfig"]
    return settings["TargetCapacity"], settings["OnDemandTargetCapacity"]


def error(subtype: str, text: str, age: float) -> dict[str, Any]:
    return {
        "Timestamp": datetime.fromtimestamp(NOW - age, UTC),
        "EventInformation": {"EventSubType": subtype, "EventDescription": text},
    }


def test_a_notice_starts_on_demand_behind_the_fleet(aws: FakeAws) -> None:
    outcome = only(controller(aws).run([InterruptionNotice("i-1", NOW + 120)]))
    assert actions(outcome) == (SetDesired(GroupRole.FALLBACK, 1, outcome.decision.reason),)
    assert aws.groups["fallback"]["DesiredCapacity"] == 1
    assert aws.calls["modify_spot_fleet_request"] == 0


def test_the_on_demand_share_changes_with_the_target(aws: FakeAws) -> None:
    aws.set(target="6", config=mixed(spotPercentage=60, max=12))
    only(controller(aws).run())
    assert targets(aws) == (6, 3)


def test_a_scale_in_lowers_the_target_before_it_terminates_instances(aws: FakeAws) -> None:
    aws.set(target="3")
    only(controller(aws).run())
    assert targets(aws) == (3, 1)
    assert "i-0" in aws.instances  # the on-demand base
    assert len(aws.instances) == 3


def divided(base: int, spot_percentage: int) -> str:
    return mixed(base=base, spotPercentage=spot_percentage, max=64, fallback=None)


EVERY_SHARE = pytest.mark.parametrize(("base", "spot_percentage"), SHARES)


@EVERY_SHARE
def test_both_targets_follow_every_target_of_the_scaler(base: int, spot_percentage: int) -> None:
    aws = FakeAws()
    aws.set(config=divided(base, spot_percentage))
    aws.add_fleet(FLEET, target=0)  # as declared
    for n, target in enumerate((2, 7, 8, 13, 40, 9, 3)):
        aws.set(target=str(target))
        only(controller(aws, NOW + 60 * n).run())
        assert targets(aws) == (target, on_demand_by_awss_rule(target, base, spot_percentage))
    assert aws.calls["modify_spot_fleet_request"] == 7


@EVERY_SHARE
@pytest.mark.parametrize("youngest_is_spot", [False, True])
def test_a_scale_in_keeps_the_on_demand_share(
    base: int, spot_percentage: int, youngest_is_spot: bool
) -> None:
    aws = FakeAws()
    aws.set(config=divided(base, spot_percentage))
    aws.add_fleet(FLEET, target=8)
    on_demand = on_demand_by_awss_rule(8, base, spot_percentage)
    for n in range(8):
        age = 3600 - n if youngest_is_spot else 3600 + n
        aws.add_instance(
            FLEET, f"i-{n}", spot=n >= on_demand, launched=NOW - age, heartbeat=NOW - 5, since=NOW - age + 200
        )
    for n, target in enumerate((7, 5, 3)):
        aws.set(target=str(target))
        only(controller(aws, NOW + n).run())
        lifecycles = [instance.get("InstanceLifecycle") for instance in aws.instances.values()]
        share = on_demand_by_awss_rule(target, base, spot_percentage)
        assert (len(lifecycles), lifecycles.count(None)) == (target, share)
        assert targets(aws) == (target, share)


def test_a_member_counts_for_its_types_weight(aws: FakeAws) -> None:
    settings = aws.fleets[FLEET]["SpotFleetRequestConfig"]
    types = ("g5.12xlarge", "g5.xlarge")
    weights = [{"InstanceType": name, "WeightedCapacity": 4.0} for name in types]
    settings |= {"LaunchTemplateConfigs": [{"Overrides": weights}], "TargetCapacity": 16}
    aws.set(config=mixed(max=32), target="9")
    outcome = only(controller(aws).run())
    assert outcome.decision is not None
    assert outcome.decision.state.ready == 16
    # One of four, not more: two would leave eight of nine. The base of one slot is an instance of four.
    assert (targets(aws), len(aws.instances)) == ((12, 1), 3)


def test_a_decrease_with_terminations_is_one_modification(aws: FakeAws) -> None:
    aws.set(target="3")
    aws.fleets[FLEET]["SpotFleetRequestConfig"]["TargetCapacity"] = 6  # two more are asked for, and refused
    lowered, released = actions(only(controller(aws).run()))
    assert (lowered.capacity, len(released.instance_ids)) == (4, 1)
    assert aws.calls["modify_spot_fleet_request"] == 1
    assert targets(aws) == (3, 1)
    assert len(aws.instances) == 3


def test_a_fleet_in_modification_gets_no_change(aws: FakeAws) -> None:
    aws.set(target="3")
    aws.fleets[FLEET]["SpotFleetRequestState"] = "modifying"
    outcome = only(controller(aws).run([InterruptionNotice("i-1", NOW + 120)]))
    assert aws.calls["modify_spot_fleet_request"] == 0
    assert outcome.decision.memory.termination_requests == {}
    assert len(aws.instances) == 4


@pytest.mark.parametrize("changed", [{"target": "6"}, {"config": mixed(base=2)}], ids=["target", "share"])
def test_a_stale_target_is_not_set_again(aws: FakeAws, changed: dict[str, str]) -> None:
    aws.set(**changed)
    old = aws.fleets[FLEET]["SpotFleetRequestConfig"]
    only(controller(aws).run())
    for later, ordered in ((SETTLE_SECONDS - 1, 1), (SETTLE_SECONDS, 2)):
        aws.fleets[FLEET]["SpotFleetRequestConfig"] = old
        only(controller(aws, NOW + later).run())
        assert aws.calls["modify_spot_fleet_request"] == ordered


def test_a_terminated_listed_member_causes_no_change(aws: FakeAws) -> None:
    aws.set(target="3")
    before = dict(aws.instances)
    only(controller(aws).run())
    aws.instances = before  # the fleet lists it until it has ended
    assert actions(only(controller(aws, NOW + 5).run())) == ()


@pytest.mark.parametrize(
    ("subtype", "kind"),
    [
        ("VcpuLimitExceeded", "primary-limit"),
        ("iamFleetRoleInvalid", "primary-permission"),
        ("bad-parameters", "primary-configuration"),
    ],
)
def test_an_error_of_the_fleet_is_an_alarm_without_on_demand(aws: FakeAws, subtype: str, kind: str) -> None:
    del aws.instances["i-3"]
    aws.history = [error(subtype, "why", age=30)]
    assert actions(only(controller(aws).run())) == (Alarm(kind, f"{subtype}: why"),)
    aws.history = []  # without another try
    only(controller(aws, NOW + 30).run())
    assert aws.groups["fallback"]["DesiredCapacity"] == 0


def test_a_lack_of_capacity_reported_as_invalid_configuration_starts_on_demand(aws: FakeAws) -> None:
    del aws.instances["i-3"]
    text = "m3.large, ami-1, Linux/UNIX: There is no Spot capacity available that matches your request."
    aws.history = [
        error("spotFleetRequestConfigurationInvalid", text, age=60),
        error("allLaunchSpecsTemporarilyBlacklisted", "Several attempts to launch instances failed", age=30),
    ]
    outcome = only(controller(aws).run())
    assert actions(outcome) == (SetDesired(GroupRole.FALLBACK, 1, outcome.decision.reason),)


@pytest.mark.parametrize(
    "subtype",
    ["allLaunchSpecsTemporarilyBlacklisted", "spotFleetRequestConfigurationInvalid", "new-sub-type"],
)
def test_an_unknown_error_of_the_fleet_starts_on_demand_and_is_an_alarm(aws: FakeAws, subtype: str) -> None:
    del aws.instances["i-3"]
    aws.history = [error(subtype, "why", age=30)]
    outcome = only(controller(aws).run())
    assert actions(outcome) == (
        Alarm("primary-unknown", f"unknown failure: {subtype}: why"),
        SetDesired(GroupRole.FALLBACK, 1, outcome.decision.reason),
    )


LIMIT = ("spotInstanceCountLimitExceeded", "You've reached the limit")
NO_CAPACITY = ("spotFleetRequestConfigurationInvalid", "There is no Spot capacity available")
NEW = ("spotFleetRequestConfigurationInvalid", "a text that AWS has not documented")


@pytest.mark.parametrize("unknown_is_newest", [False, True])
@pytest.mark.parametrize(
    ("classified", "alarm"), [(LIMIT, [Alarm("primary-spot-limit", ": ".join(LIMIT))]), (NO_CAPACITY, [])]
)
def test_an_unknown_error_next_to_a_classified_error_starts_on_demand_and_is_an_alarm(
    aws: FakeAws, classified: tuple[str, str], alarm: list[Alarm], unknown_is_newest: bool
) -> None:
    del aws.instances["i-3"]
    aws.history = [
        error(*NEW, age=30 if unknown_is_newest else 200),
        error(*classified, age=60),
        error(*classified, age=120),
    ]
    outcome = only(controller(aws).run())
    *alarms, on_demand = actions(outcome)
    assert alarms == [*alarm, Alarm("primary-unknown", f"unknown failure: {': '.join(NEW)}")]
    assert on_demand == SetDesired(GroupRole.FALLBACK, 1, outcome.decision.reason)


@EVERY_SHARE
def test_a_changed_share_is_applied_at_the_next_pass(base: int, spot_percentage: int) -> None:
    aws = FakeAws()
    aws.set(config=divided(1, 100), target="7")
    aws.add_fleet(FLEET, target=7, on_demand=1)
    only(controller(aws).run())
    assert aws.calls["modify_spot_fleet_request"] == 0
    aws.set(config=divided(base, spot_percentage))
    only(controller(aws, NOW + 60).run())
    assert targets(aws) == (7, on_demand_by_awss_rule(7, base, spot_percentage))
    assert aws.calls["modify_spot_fleet_request"] == 1
    only(controller(aws, NOW + 120).run())
    assert aws.calls["modify_spot_fleet_request"] == 1


@pytest.mark.parametrize("state", ["modifying", "paused"])
def test_a_changed_share_waits_for_the_fleet_and_for_operators(aws: FakeAws, state: str) -> None:
    aws.set(config=mixed(base=2))
    if state == "paused":
        aws.set(control='{"mode": "paused"}')
    else:
        aws.fleets[FLEET]["SpotFleetRequestState"] = state
    only(controller(aws).run())
    assert aws.calls["modify_spot_fleet_request"] == 0


@pytest.mark.parametrize("to_on_demand", [False, True])
def test_instances_of_the_new_share_replace_others_once_they_serve(to_on_demand: bool) -> None:
    before, after = (divided(0, percentage) for percentage in ((100, 50) if to_on_demand else (50, 100)))
    aws = FakeAws()
    aws.set(config=before, target="4")
    aws.add_fleet(FLEET, target=4, on_demand=0 if to_on_demand else 2)
    for n in range(4):
        spot = to_on_demand or n > 1
        aws.add_instance(FLEET, f"i-{n}", spot=spot, launched=NOW - 3600, heartbeat=NOW, since=NOW - 3400)

    def run(now: float) -> Any:
        for slot in aws.slots:
            slot["heartbeat"]["N"] = str(now)
        return only(controller(aws, now).run())

    aws.set(config=after)
    run(NOW)
    assert targets(aws) == (4, 2 if to_on_demand else 0)
    for n in (4, 5):  # the fleet launches what is below its targets, and with noTermination ends nothing
        aws.add_instance(FLEET, f"i-{n}", spot=not to_on_demand, launched=NOW + 30, heartbeat=None)
    for minute in (1, 2):
        assert actions(run(NOW + 60 * minute)) == ()
    for n in (4, 5):
        aws.slots.append(registry_item.dump(worker(f"i-{n}", NOW + 170, NOW + 175)))
    run(NOW + 180)
    lifecycles = [instance.get("InstanceLifecycle") for instance in aws.instances.values()]
    assert (len(lifecycles), lifecycles.count(None)) == (4, 2 if to_on_demand else 0)
    assert {"i-4", "i-5"} < set(aws.instances)
    assert targets(aws) == (4, 2 if to_on_demand else 0)


def test_a_cancelled_fleet_is_an_alarm(aws: FakeAws) -> None:
    aws.fleets[FLEET]["SpotFleetRequestState"] = "cancelled_terminating"
    [alarm] = [a for a in actions(only(controller(aws).run())) if isinstance(a, Alarm)]
    assert alarm.kind == "primary-missing"
    expected = f"Spot Fleet {FLEET!r} must be submitted, active or modifying, but is cancelled_terminating"
    assert expected in alarm.reason


def test_calls_grow_only_with_pages(aws: FakeAws) -> None:
    aws.set(config=mixed(max=5000), target="2504")
    for n in range(2500):
        aws.add_instance(FLEET, f"i-x{n}", spot=True, launched=NOW - 3600, heartbeat=NOW)
    only(controller(aws).run())
    assert aws.calls["describe_spot_fleet_instances"] == 3
    assert aws.calls["batch_get_item"] == 27
    assert sum(aws.calls.values()) <= 17 + 27
