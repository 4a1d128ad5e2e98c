"""Everything that must be reached is, in the sample stacks and in generated networks."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from infra.settings import SettingsError, load_settings
from tests.infra.declared import ROOT, Run, run, shipped
from tests.infra.reachability import CLUSTER_GROUP, World, unreachable
from tests.kubernetes.entries import JOB, SERVICE, STACK
from tests.kubernetes.test_own_cluster import CREATED
from tests.soak import sample

STACKS: Final = tuple(sorted(path.suffixes[0][1:] for path in (ROOT / "stacks").glob("Pulumi.*.yaml")))
GENERATED: Final = 200
BATCHES: Final = 8
ZONES: Final = ("us-west-2a", "us-west-2b", "us-west-2c")
EXISTING: Final[dict[str, Any]] = {
    "vpcId": "vpc-0000000a",
    "subnets": {"us-west-2a": "subnet-0000000a", "us-west-2b": "subnet-0000000b"},
}
BROKER: Final[dict[str, Any]] = {"kind": "rabbitmq", "instanceType": "mq.m7g.large"}
SHARED_HOST: Final = yaml.safe_load((ROOT / "stacks" / "Pulumi.shared.yaml").read_text())["config"][
    "gpu-spot:sharedHosts"
]


def stack_with(network: dict[str, Any], choose: Callable[[str, int], int]) -> dict[str, Any]:
    """Return a stack file's configuration; ``choose`` answers a question with a number below the second."""
    raw = copy.deepcopy(STACK)
    raw["gpu-spot:network"] = network
    raw["gpu-spot:kubernetes"] = copy.deepcopy(CREATED)
    raw["gpu-spot:kubernetes"]["create"] |= [
        {"publicCidrs": ["203.0.113.0/28"]},
        {"publicCidrs": ["203.0.113.0/28"], "allowedSources": ["10.90.0.0/16"]},
        {"allowedSources": ["10.91.0.0/16"]},
    ][choose("api", 3)]
    sources = [{}, {"allowedSources": ["10.92.0.0/16", "sg-0123456789abcdef0"]}][choose("sources", 2)]
    first = {**SERVICE, "queue": [{"kind": "sqs"}, {**BROKER, **sources}][choose("queue", 2)]}
    second = {**SERVICE, "name": "asr", "queue": {"kind": "sqs"}}
    if first["queue"]["kind"] == "rabbitmq" and choose("shared", 2):
        second["queue"] = {"kind": "rabbitmq", "existing": {"brokerOf": "ocr"}}
    for number, service in enumerate((first, second)):
        if choose(f"platform {number}", 2):
            service["runsOn"] = "instances"
            service["scaling"] = {"min": 1}
    raw["gpu-spot:services"] = [first, second][: 1 + choose("services", 2)]
    if choose("host", 2):
        raw["gpu-spot:sharedHosts"] = copy.deepcopy(SHARED_HOST)
    if choose("cluster", 3) == 0:
        for service in raw["gpu-spot:services"]:
            service |= {"runsOn": "instances", "scaling": {"min": 1}}
        job = {
            key: JOB[key] for key in ("name", "repository", "revision", "command", "checkpoints", "capacity")
        }
        raw["gpu-spot:training"] = [job]
        del raw["gpu-spot:kubernetes"]
    return raw


def generated_network(number: random.Random) -> dict[str, Any]:
    endpoints = number.choice(["gateway", "interface", "none", None])
    extra = number.sample(["sts", "eks", "eks-auth", "sqs"], number.randrange(3))
    if number.random() < 0.3:
        network = {**EXISTING, **number.choice([{}, {"securityGroups": ["sg-0000000a"]}])}
    else:
        network = {
            "cidr": f"10.{number.randrange(1, 90)}.0.0/16",
            "zones": number.sample(ZONES, number.randrange(1, 4)),
            "egress": number.choice(["nat-gateway", "nat-gateway-per-zone", "none"]),
        }
    return {
        **network,
        **({"endpoints": endpoints} if endpoints else {}),
        **({"extraEndpoints": extra} if extra else {}),
    }


def generated(seed: int) -> dict[str, Any]:
    """Return the first valid configuration of a seed."""
    number = random.Random(seed)
    while True:
        raw = stack_with(generated_network(number), lambda _, below: number.randrange(below))
        try:
            load_settings(raw)
        except SettingsError:
            continue
        return raw


def run_of(raw: dict[str, Any], folder: Path) -> Run:
    path = folder / "Pulumi.generated.yaml"
    path.write_text(yaml.safe_dump({"config": raw}))
    return run("known", path, "dev")


@pytest.fixture(scope="module")
def richest(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A created cluster with both kinds of queue, files, a shared host, all endpoints and NAT."""
    network = {"cidr": "10.20.0.0/16", "zones": list(ZONES[:2]), "endpoints": "interface"}
    answers = {"api": 1, "sources": 1, "queue": 1, "shared": 1, "platform 1": 1, "services": 1, "host": 1}
    raw = stack_with(network, lambda question, _: {**answers, "cluster": 1}.get(question, 0))
    return run_of(raw, tmp_path_factory.mktemp("richest"))


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Instances with both kinds of queue in a VPC without the internet."""
    network = {"cidr": "10.20.0.0/16", "zones": list(ZONES), "egress": "none", "endpoints": "interface"}
    answers = {"queue": 1, "sources": 1, "services": 1, "host": 1, "cluster": 0}
    raw = stack_with(network, lambda question, _: answers.get(question, 0))
    return run_of(raw, tmp_path_factory.mktemp("closed"))


def removed_once(run: Run, *kinds: str) -> dict[str, list[str]]:
    """Return what is unreachable without each resource of ``kinds``, by its name."""
    world = World.of(run)
    found = {}
    for kind in kinds:
        declared = getattr(world, kind)
        for name in declared:
            without = {key: value for key, value in declared.items() if key != name}
            found[f"{kind} {name}"] = unreachable(run, replace(world, **{kind: without}))
    return found


@pytest.mark.parametrize("stack", STACKS)
def test_everything_is_reached_in_the_sample_stacks(stack: str) -> None:
    assert unreachable(shipped(stack)) == []


def test_everything_is_reached_in_the_richest_and_in_a_closed_network(richest: Run, closed: Run) -> None:
    assert unreachable(richest) == []
    assert unreachable(closed) == []


@pytest.mark.long
@pytest.mark.parametrize("batch", sample(range(BATCHES), 4))
def test_everything_is_reached_in_generated_networks(batch: int, tmp_path: Path) -> None:
    for seed in range(batch, GENERATED, BATCHES):
        raw = generated(seed)
        assert unreachable(run_of(raw, tmp_path)) == [], (seed, raw["gpu-spot:network"])


@pytest.mark.parametrize("stack", STACKS)
def test_each_rule_of_a_sample_stack_is_needed(stack: str) -> None:
    unnoticed = [
        name for name, found in removed_once(shipped(stack), "ingress", "egress").items() if not found
    ]
    assert unnoticed == []


def test_each_rule_and_route_is_needed(richest: Run, closed: Run) -> None:
    without = removed_once(richest, "ingress", "egress", "routes", "nats")
    without |= removed_once(closed, "ingress", "egress", "endpoints")
    assert [name for name, found in without.items() if not found] == []
    assert len(without) >= 30


def test_without_its_rules_a_cluster_can_call_nothing(richest: Run) -> None:
    without = removed_once(richest, "ingress")
    prefix = "ingress gpu-spot-dev-"
    assert "system nodes cannot call ec2" in without[f"{prefix}endpoints-in-cluster"]


def test_nothing_reaches_an_api_without_a_source(richest: Run) -> None:
    raw = copy.deepcopy(richest.declared)
    for one in raw:
        if one["type"] == "aws:eks/cluster:Cluster":
            one["inputs"]["vpcConfig"] |= {"endpointPublicAccess": False, "publicAccessCidrs": []}
    private = replace(richest, declared=raw)
    assert unreachable(private) == []
    world = World.of(private)
    rules = {name: rule for name, rule in world.ingress.items() if "-api-" not in name}
    assert "nothing can connect to the cluster's API" in unreachable(private, replace(world, ingress=rules))


def test_an_existing_cluster_reaches_the_endpoints(tmp_path: Path) -> None:
    raw = copy.deepcopy(STACK) | {"gpu-spot:network": {**EXISTING, "endpoints": "interface"}}
    raw["gpu-spot:services"][0]["queue"] = BROKER
    existing = run_of(raw, tmp_path)
    assert unreachable(existing) == []
    rules = existing.of("SecurityGroupIngressRule")
    admitted = {
        (rule["securityGroupId"], rule["fromPort"])
        for rule in rules.values()
        if rule.get("referencedSecurityGroupId") == CLUSTER_GROUP
    }
    assert admitted == {("gpu-spot-dev-endpoints-id", 443)}


def test_a_world_has_every_resource_that_decides_about_traffic(richest: Run) -> None:
    world = World.of(richest)
    assert all(getattr(world, one.name) for one in fields(world))
