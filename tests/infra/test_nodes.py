"""``training[].nodes``: what the stack file may say, and what the group and its instances get."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from contracts import codec
from contracts.agent.nodes import JobNodes
from infra.catalogue import accelerators
from infra.catalogue.network_interfaces import EFA_INTERFACES, efa_interfaces
from infra.program.entries.training import agent_config, kind
from infra.settings import SettingsError
from tests.infra import training
from tests.infra.declared import run, variant
from tests.infra.test_matrix import FILES, NAME, settings

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
    with pytest.raises(SettingsError, match=r"nodes\.zone of 'resnet' is missing, allowed: one of us"):
        settings(**four)
    [job] = settings(**{**SHARED, "nodes": {"min": 4, "max": 4, "zone": ZONE}}).jobs
    assert (str(job.nodes), job.nodes.setting) == ("4", JobNodes(4, 4))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"nodes": {"min": 3, "max": 2}}, "nodes: min 3 with max 2, allowed: 1 to 2"),
        ({"nodes": {"min": 0, "max": 4}}, "nodes.min"),
        ({"nodes": {"max": 65}}, "nodes.max"),
        ({"nodes": {"min": 2, "max": 4, "zone": "us-west-2d"}}, "is us-west-2d, allowed: one of us-west-2a"),
        ({"capacity": {**SHARED["capacity"], "target": 2}}, "capacity.target: 2, allowed: 4 (nodes.max)"),
        ({"volumeGiB": 9}, "with volumeGiB 9, allowed: 0 (EBS attaches a volume to one instance"),
        ({"matrix": {"A": [1]}}, "with matrix, allowed: one of them"),
        ({"study": {"combinations": [{"A": 1}]}}, "with study, allowed: one of them"),
        ({"deadline": "2030-01-01T00:00:00Z"}, "with deadline, allowed: without"),
        ({"budget": 9}, "with budget, allowed: without, or capacity.budget"),
        ({"image": training.IMAGE}, "with image, allowed: python"),
        ({"artifacts": "s3://bucket/a/"}, "with artifacts, allowed: $GPU_SPOT_ARTIFACTS"),
        ({"name": "a" * 17}, "a name of at most 16 characters"),
        ({"nodes": {"efa": True}}, "nodes: efa with max 1, allowed: with several nodes"),
        (
            {"nodes": {"placementGroup": True}},
            "nodes: placementGroup with max 1, allowed: with several nodes",
        ),
        (efa("g5.xlarge"), "nodes: efa with 'g5.xlarge', allowed: types with EFA: g5.8xlarge, g5.12xlarge,"),
        (efa("g6.8xlarge", "g6.xlarge"), "efa with 'g6.xlarge', allowed: types with EFA: g6.8xlarge"),
        (
            efa("g5g.16xlarge"),
            "efa with 'g5g.16xlarge', allowed: types with EFA: p3dn.24xlarge, p4d.24xlarge",
        ),
        (
            efa("g6e.12xlarge", "g6e.24xlarge"),
            "efa with 'g6e.12xlarge' (1) and 'g6e.24xlarge' (2), allowed: types with the same EFA interfaces",
        ),
        # As many, but one of them has them on other cards.
        (efa("p5en.48xlarge", "p6-b300.48xlarge"), "'p5en.48xlarge' (16) and 'p6-b300.48xlarge' (16)"),
        (efa("g5.8xlarge", kind="spot-fleet"), "efa with kind 'spot-fleet', allowed: 'mixed-asg'"),
        # Burstable types, which no cluster placement group takes, are no types of a group at all.
        (efa("t3.large"), "capacity.instanceTypes: 't3.large' is not a known accelerator type"),
    ],
)
def test_what_does_not_work_is_refused_in_words(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(SettingsError) as caught:
        settings(**{**SHARED, **changes})
    assert says in str(caught.value)
    assert str(caught.value).startswith("gpu-spot:training")


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


def test_another_entry_may_not_be_named_as_a_node() -> None:
    other = {**training.job(), "name": f"{NAME}-node-0"}
    with pytest.raises(SettingsError, match="has the prefix of the nodes of 'resnet'"):
        settings((other,), **SHARED)


@pytest.mark.soak
def test_its_instances_are_in_one_zone_and_reach_each_other(tmp_path: Path) -> None:
    def change(config: dict[str, Any]) -> None:
        config["gpu-spot:storage"] = FILES
        zone = config["gpu-spot:network"]["zones"][1]
        nodes = {"min": 2, "max": 4, "zone": zone}
        config["gpu-spot:training"] = [training.job(**{**SHARED, "nodes": nodes})]

    found = run("known", variant(tmp_path, change))
    config = json.loads(found.the("Parameter", f"{NAME}-config")["insecureValue"])
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
    policy = json.loads(found.the("RolePolicy", f"{NAME}-instance")["policy"])["Statement"]
    assert any(statement["Sid"] == "KeepExperiments" for statement in policy)
