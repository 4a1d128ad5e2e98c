"""A job without a data volume: nothing of one is declared, granted or asked for, and any zone will do."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest

from contracts.agent import config as model
from contracts.agent import names
from infra.settings import SettingsError, load_settings
from tests.infra.declared import Run, shipped
from tests.infra.test_refusals import STACKS
from userdata import render

WITH: Final = "research"
WITHOUT: Final = "research-efs"
OF_A_VOLUME: Final = (
    *("ec2:CreateVolume", "ec2:AttachVolume", "ec2:DetachVolume", "ec2:DeleteVolume", "ec2:ModifyVolume"),
    *("ec2:CreateSnapshot", "ec2:DeleteSnapshot", "ec2:DescribeSnapshots", "ec2:CreateTags"),
)


def allowed(run: Run, role: str) -> set[str]:
    document = json.loads(run.the("RolePolicy", role)["policy"])
    return {action for statement in document["Statement"] for action in statement["Action"]}


def config(run: Run) -> dict[str, Any]:
    return dict(json.loads(run.the("Parameter", "resnet-config")["insecureValue"]))


def test_its_instances_have_no_permissions_for_volumes_and_keep_the_lease() -> None:
    assert set(OF_A_VOLUME) <= allowed(shipped(WITH), "resnet-instance")
    found = allowed(shipped(WITHOUT), "resnet-instance")
    assert not found.intersection(OF_A_VOLUME)
    # The lease, the end of the run, the checkpoints, and the dataset's volume that the launch has made.
    assert {"dynamodb:UpdateItem", "ssm:PutParameter", "elasticfilesystem:ClientWrite"} <= found
    assert "ec2:DescribeVolumes" in found


def test_on_demand_is_asked_for_in_any_zone_and_its_successor_still_waits_for_the_lease() -> None:
    before, after = config(shipped(WITH)), config(shipped(WITHOUT))
    assert (before["byZone"], after["byZone"]) == (True, False)
    assert (before["breakBeforeMake"], after["breakBeforeMake"]) == (True, True)


@pytest.mark.parametrize("action", ["autoscaling:LaunchInstances", "ec2:CreateFleet"])
def test_the_controller_may_not_launch_by_zone_without_need(action: str) -> None:
    def may(run: Run) -> bool:
        return any(
            action in json.dumps(one["inputs"].get("policy", ""))
            for one in run.declared
            if one["type"].endswith("RolePolicy:RolePolicy") or one["type"].endswith("rolePolicy:RolePolicy")
        )

    assert may(shipped(WITH))
    assert not may(shipped(WITHOUT))


def test_without_a_volume_there_is_no_alarm_for_it() -> None:
    def metrics(stack: str) -> set[str]:
        return {alarm["metricName"] for alarm in shipped(stack).of("MetricAlarm").values()}

    assert metrics(WITH) - metrics(WITHOUT) == {"DataVolumeFree"}


def test_an_instance_starts_no_unit_of_a_volume_and_mounts_its_checkpoints() -> None:
    agent = model.parse(json.dumps(shipped(WITHOUT).agent("resnet-primary")))
    assert agent.volume is None
    assert [mount.path for mount in agent.efs] == ["/dltraining/checkpoints"]
    units = render.units(agent)
    assert names.UNIT_VOLUME not in units
    assert {names.UNIT_RUN, names.UNIT_EFS} <= set(units)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("dataset", "s3://datasets/imagenet/"),
        ("prepare", {"version": "1", "command": ["x"], "instanceType": "m7i.large"}),
        ("initializationRateMib", 300),
        ("throughputMib", 125),
        ("snapshotEveryMinutes", 0),
        ("checkpoints", "volume"),
    ],
)
def test_keys_that_need_a_volume_are_rejected_without_one(key: str, value: Any) -> None:
    shipped_one = STACKS[WITHOUT]
    [job] = shipped_one["gpu-spot:training"]
    with pytest.raises(SettingsError) as caught:
        load_settings({**shipped_one, "gpu-spot:training": [{**job, key: value}]})
    [line] = str(caught.value).splitlines()
    assert line.startswith(f"gpu-spot:training[0]: {key} ")
    assert "with volumeGiB 0, allowed: " in line
