"""``training[].nodes``: what the stack file may say, and what the group and its instances get."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest

from contracts import codec
from contracts.agent import config as model
from contracts.agent import names
from contracts.agent.nodes import JobNodes
from infra.catalogue import accelerators
from infra.catalogue.network_interfaces import EFA_INTERFACES, efa_interfaces
from infra.program.entries.training import agent_config, kind
from infra.settings import SettingsError
from tests.infra import training
from tests.infra.declared import Run, edited_stack, shipped
from tests.infra.test_matrix import FILES, NAME, settings
from userdata import render

ZONE = "us-west-2b"
SHARED: dict[str, Any] = {
    "volumeGiB": 0,
    "checkpoints": "checkpoints",
    "dataset": None,
    "capacity": {**training.job()["capacity"], "target": 4},
    "nodes": {"min": 2, "max": 4, "zone": ZONE},
}


def efa(*types: str, **capacity: Any) -> dict[str, Any]:
    """Return four nodes with a placement group and EFA, of these types."""
    return {
        "nodes": {**SHARED["nodes"], "placementGroup": True, "efa": True},
        "capacity": {**SHARED["capacity"], "instanceTypes": list(types), **capacity},
    }


def test_the_agent_and_the_group_get_them() -> None:
    declared = settings(**SHARED)
    [job] = declared.jobs
    outputs = agent_config.JobOutputs("jobs", "fs-1", "fsap-1")
    work = agent_config.work(job, "dev", "us-west-2", outputs)
    received = codec.parse(JobNodes, json.loads(json.dumps(codec.dump(work["training"].nodes))))
    assert received == JobNodes(2, 4)
    assert received.names(NAME) == [f"{NAME}-node-{number}" for number in range(4)]
    assert "experiments" in kind.needs(declared)
    assert declared.zones_of(NAME) == (ZONE,)
    # Quotas, budgets and forecasts count the target.
    assert declared.capacities[NAME].target == 4


def test_one_node_is_as_before() -> None:
    [job] = settings().jobs
    assert not job.has_nodes
    work = agent_config.work(job, "dev", "us-west-2", agent_config.JobOutputs("jobs"))
    assert work["training"].nodes is None
    assert "experiments" not in kind.needs(settings())
    assert settings().zones_of(NAME) == ("us-west-2a", "us-west-2b")


def test_a_number_means_that_all_are_needed() -> None:
    four = {**SHARED, "nodes": 4}
    with pytest.raises(SettingsError, match=r"nodes\.zone of 'resnet' must be us"):
        settings(**four)
    [job] = settings(**{**SHARED, "nodes": {"min": 4, "max": 4, "zone": ZONE}}).jobs
    assert (str(job.nodes), job.nodes.setting) == ("4", JobNodes(4, 4))


def test_types_with_the_same_interfaces_are_taken_together() -> None:
    [job] = settings(**{**SHARED, **efa("g6.12xlarge", "g5.12xlarge", "p5.4xlarge")}).jobs
    assert job.nodes.efa
    assert job.nodes.placement_group
    assert job.nodes.setting == JobNodes(2, 4), "the agent does not see them"


@pytest.mark.parametrize("name", EFA_INTERFACES)
def test_a_type_is_launched_with_all_its_interfaces(name: str) -> None:
    """By the EC2 user guide, and the rules that Karpenter's API has for such interfaces."""
    first, *rest = interfaces = efa_interfaces(name)
    assert name in accelerators.CATALOGUE
    assert (first.card, first.device) == (0, 0)
    assert first.type != "efa-only", "no primary interface"
    assert sum(interface.type != "interface" for interface in interfaces) == EFA_INTERFACES[name]
    assert len({(interface.card, interface.device) for interface in interfaces}) == len(interfaces)
    with_efa = [interface.card for interface in interfaces if interface.type != "interface"]
    assert len(set(with_efa)) == len(with_efa), "a card takes one"
    assert all(interface.type == "efa-only" for interface in rest), "one IP address"


def test_interfaces_are_those_of_the_guides_example() -> None:
    p5 = [(one.card, one.device, one.type) for one in efa_interfaces("p5.48xlarge")]
    assert p5[:3] == [(0, 0, "interface"), (0, 1, "efa-only"), (1, 0, "efa-only")]
    assert p5[-1] == (31, 0, "efa-only")
    assert [one.card for one in efa_interfaces("p6-b300.48xlarge")] == list(range(17)), "none on card 0"
    assert efa_interfaces("g5.xlarge") == ()


@pytest.mark.soak
def test_its_instances_are_in_one_zone_and_reach_each_other() -> None:
    found = edited_stack({"storage": FILES, "training": [training.job(**SHARED)]})
    config = found.config(NAME)
    assert not config["breakBeforeMake"]
    [zone] = config["zones"]
    for role in ("primary", "fallback"):
        [subnet] = found.the("Group", f"{NAME}-{role}")["vpcZoneIdentifiers"]
        assert zone in subnet
        assert found.agent(f"{NAME}-{role}")["training"]["nodes"] == {"min": 2, "max": 4}
        groups = found.the("LaunchTemplate", f"{NAME}-{role}")["vpcSecurityGroupIds"]
        assert any(f"{NAME}-nodes" in group for group in groups)
    for direction, rule_type in (("in", "SecurityGroupIngressRule"), ("out", "SecurityGroupEgressRule")):
        rule = found.the(rule_type, f"{NAME}-nodes-{direction}")
        assert rule["ipProtocol"] == "-1"
        assert rule["referencedSecurityGroupId"] == rule["securityGroupId"]
    policy = found.policy(f"{NAME}-instance")["Statement"]
    assert any(statement["Sid"] == "KeepExperiments" for statement in policy)


WITH: Final = "research"
WITHOUT: Final = "research-efs"
OF_A_VOLUME: Final = (
    *("ec2:CreateVolume", "ec2:AttachVolume", "ec2:DetachVolume", "ec2:DeleteVolume", "ec2:ModifyVolume"),
    *("ec2:CreateSnapshot", "ec2:DeleteSnapshot", "ec2:DescribeSnapshots", "ec2:CreateTags"),
)


def allowed(run: Run, role: str) -> set[str]:
    document = run.policy(role)
    return {action for statement in document["Statement"] for action in statement["Action"]}


def test_its_instances_have_no_permissions_for_volumes_and_keep_the_lease() -> None:
    assert set(OF_A_VOLUME) <= allowed(shipped(WITH), "resnet-instance")
    found = allowed(shipped(WITHOUT), "resnet-instance")
    assert not found.intersection(OF_A_VOLUME)
    # The lease, the end of the run, the checkpoints, and the dataset's volume that the launch has made.
    assert {"dynamodb:UpdateItem", "ssm:PutParameter", "elasticfilesystem:ClientWrite"} <= found
    assert "ec2:DescribeVolumes" in found


def test_on_demand_is_asked_for_in_any_zone_and_its_successor_still_waits_for_the_lease() -> None:
    before, after = (shipped(stack).config("resnet") for stack in (WITH, WITHOUT))
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
