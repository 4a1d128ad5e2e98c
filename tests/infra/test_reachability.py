"""Everything that must be reached is, in the sample stacks and in generated networks."""

from __future__ import annotations

import copy
import ipaddress
import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final

import pytest
import yaml

from infra.settings import SettingsError, load_settings
from tests.infra.declared import ROOT, Run, shipped, stack_of
from tests.kubernetes.entries import JOB, SERVICE, STACK
from tests.kubernetes.test_own_cluster import CREATED
from tests.soak import sample

CLUSTER_GROUP: Final = "sg-00000c1a"
"""What the mocks return for the group that EKS creates."""
_ANY: Final = "0.0.0.0/0"
_GATEWAYS: Final = frozenset({"s3", "dynamodb"})
_ENDPOINTS: Final[Mapping[str, tuple[str, ...]]] = {
    "cloudwatch": ("monitoring",),
    "ecr": ("ecr.api", "ecr.dkr"),
}
_NOT_CALLED: Final = frozenset({"elasticfilesystem", "kms", "iam"})
"""NFS; used by other services; only checked by others."""
_OF_A_NODE: Final = ("ec2", "ecr.api", "ecr.dkr", "eks", "eks-auth", "s3", "sqs", "ssm", "registries")
_AMQPS: Final = 5671
_HTTPS: Final = 443
_NFS: Final = 2049


@dataclass(frozen=True)
class Client:
    """A client in subnets of the VPC with security groups, or outside with an address block."""

    name: str
    groups: frozenset[str] = frozenset()
    subnets: frozenset[str] = frozenset()
    block: str = ""


@dataclass(frozen=True)
class World:
    """The declared network; each mapping is by logical name."""

    ingress: Mapping[str, Mapping[str, Any]]
    egress: Mapping[str, Mapping[str, Any]]
    endpoints: Mapping[str, Mapping[str, Any]]
    routes: Mapping[str, Mapping[str, Any]]
    associations: Mapping[str, Mapping[str, Any]]
    nats: Mapping[str, Mapping[str, Any]]
    subnets: frozenset[str] = field(default_factory=frozenset)

    @classmethod
    def of(cls, run: Run) -> World:
        return cls(
            run.of("SecurityGroupIngressRule"),
            run.of("SecurityGroupEgressRule"),
            run.of("VpcEndpoint"),
            run.of("Route"),
            run.of("RouteTableAssociation"),
            run.of("NatGateway"),
            frozenset(f"{run.physical(name)}-id" for name in run.of("Subnet")),
        )

    def admits(self, group: str, port: int, client: Client) -> bool:
        """Return whether a group lets a client in, and the client's groups let it out."""
        if group == CLUSTER_GROUP and CLUSTER_GROUP in client.groups:
            return True
        return self._leaves(client, port) and any(
            rule["securityGroupId"] == group and _covers(rule, port) and _is_from(rule, client)
            for rule in self.ingress.values()
        )

    def calls(self, client: Client, service: str) -> bool:
        """Return whether a client reaches a service of AWS, or ``registries``, from each of its subnets."""
        interface = [one for one in self.endpoints.values() if _is_interface_of(one, service)]
        if interface:
            groups = [group for one in interface for group in one["securityGroupIds"]]
            return any(self.admits(group, _HTTPS, client) for group in groups)
        return self._leaves(client, _HTTPS) and all(
            self._has_gateway(subnet, service) or self._reaches_internet(subnet) for subnet in client.subnets
        )

    def _leaves(self, client: Client, port: int) -> bool:
        if not client.subnets or CLUSTER_GROUP in client.groups:
            return True
        return any(
            rule["securityGroupId"] in client.groups and rule.get("cidrIpv4") == _ANY and _covers(rule, port)
            for rule in self.egress.values()
        )

    def _table(self, subnet: str) -> str | None:
        tables = (one["routeTableId"] for one in self.associations.values() if one["subnetId"] == subnet)
        return next(tables, None)

    def _has_gateway(self, subnet: str, service: str) -> bool:
        return service in _GATEWAYS and any(
            one["vpcEndpointType"] == "Gateway"
            and one["serviceName"].endswith(f".{service}")
            and self._table(subnet) in one["routeTableIds"]
            for one in self.endpoints.values()
        )

    def _reaches_internet(self, subnet: str) -> bool:
        if subnet not in self.subnets:
            return True  # of an existing VPC
        for route in self._default_routes(subnet):
            if "gatewayId" in route:
                return True
            behind = [
                one
                for name, one in self.nats.items()
                if route.get("natGatewayId", "").endswith(f"-{name}-id")
            ]
            if any("gatewayId" in out for nat in behind for out in self._default_routes(nat["subnetId"])):
                return True
        return False

    def _default_routes(self, subnet: str) -> Iterator[Mapping[str, Any]]:
        table = self._table(subnet)
        for route in self.routes.values():
            if route["routeTableId"] == table and route["destinationCidrBlock"] == _ANY:
                yield route


def unreachable(run: Run, world: World | None = None) -> list[str]:
    """Return what is not reachable, one line each; ``world`` is another network than the declared one."""
    return sorted({*_failures(run, world or World.of(run))})


def _failures(run: Run, world: World) -> Iterator[str]:
    system, gpu = _nodes(run)
    instances = [*_instances(run)]
    for client, services in (*instances, *_watchers(run), *((node, _OF_A_NODE) for node in (*system, *gpu))):
        for service in services:
            if not world.calls(client, service):
                yield f"{client.name} cannot call {service}"
    workers = [client for client, _ in instances]
    for target, group, port, clients in (
        *(("file system", group, _NFS, [*workers, *gpu]) for group in _groups_of(run, "MountTarget")),
        *(("broker", group, _AMQPS, [*workers, *gpu]) for group in _groups_of(run, "Broker")),
        *(
            ("broker", group, _HTTPS, [one for one, _ in _watchers(run)])
            for group in _groups_of(run, "Broker")
        ),
    ):
        for client in clients:
            if not world.admits(group, port, client):
                yield f"{client.name} cannot connect to the {target} at {port}"
    yield from _outside(run, world)


def _outside(run: Run, world: World) -> Iterator[str]:
    """Judge who connects from outside: the sources that the stack file allows, and the machine of `up`."""
    for source, group, port in allowed_sources(run):
        if not world.admits(group, port, source):
            yield f"{source.name} cannot connect to {group} at {port}"
    for cluster in run.of("Cluster").values():
        public = cluster["vpcConfig"].get("publicAccessCidrs") or []
        private = [
            rule["cidrIpv4"]
            for rule in world.ingress.values()
            if rule["securityGroupId"] == CLUSTER_GROUP and rule.get("cidrIpv4") and _covers(rule, _HTTPS)
        ]
        if not (cluster["vpcConfig"]["endpointPublicAccess"] and public) and not private:
            yield "nothing can connect to the cluster's API"


def allowed_sources(run: Run) -> Iterator[tuple[Client, str, int]]:
    """Yield the sources of ``allowedSources`` with what they must reach, from the stack file."""
    for service in run.settings.get("gpu-spot:services", []):
        queue = service.get("queue") or {}
        group = f"gpu-spot-{run.stack}-{service['name']}-mq-id"
        for source in queue.get("allowedSources", []) if queue.get("kind") == "rabbitmq" else []:
            for port in (_AMQPS, _HTTPS):
                yield _source(source), group, port
    for host in run.settings.get("gpu-spot:sharedHosts", []):
        for tenant in host["tenants"]:
            for source in host.get("allowedSources", []) if "hostPort" in tenant else []:
                yield _source(source), f"gpu-spot-{run.stack}-{host['name']}-ports-id", tenant["hostPort"]
    create = (run.settings.get("gpu-spot:kubernetes") or {}).get("create") or {}
    for source in create.get("allowedSources", []):
        yield _source(source), CLUSTER_GROUP, _HTTPS


def _source(text: str) -> Client:
    if text.startswith("sg-"):
        return Client(text, groups=frozenset({text}))
    return Client(text, block=text)


def _instances(run: Run) -> Iterator[tuple[Client, Sequence[str]]]:
    subnets = _subnets_of_groups(run)
    for name, template in run.of("LaunchTemplate").items():
        if groups := template.get("vpcSecurityGroupIds"):
            short = name.rpartition("-")[0]
            called = _services(run, f"{short}-instance") | {*_GATEWAYS}
            yield Client(name, frozenset(groups), subnets), sorted(called)


def _watchers(run: Run) -> list[tuple[Client, Sequence[str]]]:
    found = []
    for name, function in run.of("Function").items():
        if network := function.get("vpcConfig"):
            groups, subnets = frozenset(network["securityGroupIds"]), frozenset(network["subnetIds"])
            # Interfaces are made, and logs are sent, by Lambda itself.
            called = _services(run, f"{name}-function") - {"ec2", "logs"}
            found.append((Client(name, groups, subnets), sorted(called)))
    return found


def _nodes(run: Run) -> tuple[list[Client], list[Client]]:
    """Return the system nodes of a created cluster, and Karpenter's nodes of any."""
    system = [
        Client("system nodes", frozenset({CLUSTER_GROUP}), frozenset(group["subnetIds"]))
        for group in run.of("NodeGroup").values()
    ]
    gpu = []
    for one in run.declared:
        if one["type"].endswith(":EC2NodeClass"):
            spec = one["inputs"]["spec"]
            terms = spec["securityGroupSelectorTerms"]
            groups = {term.get("id", CLUSTER_GROUP) for term in terms}
            subnets = frozenset(term["id"] for term in spec["subnetSelectorTerms"])
            gpu.append(Client(f"nodes of {one['name']}", frozenset(groups), subnets))
    return system, gpu


def _subnets_of_groups(run: Run) -> frozenset[str]:
    found = {one for group in run.of("Group").values() for one in group.get("vpcZoneIdentifiers") or []}
    for fleet in run.of("SpotFleetRequest").values():
        for config in fleet["launchTemplateConfigs"]:
            found |= {override["subnetId"] for override in config["overrides"]}
    return frozenset(found)


def _services(run: Run, role: str) -> set[str]:
    policies = [policy for name, policy in run.of("RolePolicy").items() if name == role]
    prefixes = {
        action.partition(":")[0]
        for policy in policies
        for statement in json.loads(policy["policy"])["Statement"]
        for action in statement["Action"]
    } - _NOT_CALLED
    return {name for prefix in prefixes for name in _ENDPOINTS.get(prefix, (prefix,))}


def _groups_of(run: Run, kind: str) -> set[str]:
    return {group for one in run.of(kind).values() for group in one["securityGroups"]}


def _covers(rule: Mapping[str, Any], port: int) -> bool:
    return rule["ipProtocol"] == "-1" or rule["fromPort"] <= port <= rule["toPort"]


def _is_from(rule: Mapping[str, Any], client: Client) -> bool:
    if rule.get("referencedSecurityGroupId") in client.groups:
        return True
    cidr = rule.get("cidrIpv4")
    if not cidr or not client.block:
        return False
    return ipaddress.IPv4Network(client.block).subnet_of(ipaddress.IPv4Network(cidr))


def _is_interface_of(endpoint: Mapping[str, Any], service: str) -> bool:
    name = endpoint["serviceName"].split(".", 3)[-1]
    return endpoint["vpcEndpointType"] == "Interface" and name == service


STACKS: Final = tuple(sorted(path.suffixes[0][1:] for path in (ROOT / "stacks").glob("Pulumi.*.yaml")))
GENERATED: Final = 200
BATCHES: Final = 32
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
            "egress": number.choice(["public", "nat-gateway", "nat-gateway-per-zone", "none"]),
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


@pytest.fixture(scope="module")
def richest() -> Run:
    """A created cluster with both kinds of queue, files, a shared host, all endpoints and NAT."""
    network = {"cidr": "10.20.0.0/16", "zones": list(ZONES[:2]), "egress": "nat-gateway"}
    network["endpoints"] = "interface"
    answers = {"api": 1, "sources": 1, "queue": 1, "shared": 1, "platform 1": 1, "services": 1, "host": 1}
    raw = stack_with(network, lambda question, _: {**answers, "cluster": 1}.get(question, 0))
    return stack_of(raw)


@pytest.fixture(scope="module")
def closed() -> Run:
    """Instances with both kinds of queue in a VPC without the internet."""
    network = {"cidr": "10.20.0.0/16", "zones": list(ZONES), "egress": "none", "endpoints": "interface"}
    answers = {"queue": 1, "sources": 1, "services": 1, "host": 1, "cluster": 0}
    raw = stack_with(network, lambda question, _: answers.get(question, 0))
    return stack_of(raw)


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
@pytest.mark.parametrize("batch", sample(range(BATCHES), BATCHES))
def test_everything_is_reached_in_generated_networks(batch: int) -> None:
    for seed in range(batch, GENERATED, BATCHES):
        raw = generated(seed)
        assert unreachable(stack_of(raw)) == [], (seed, raw["gpu-spot:network"])


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
    prefix = "ingress "
    assert "system nodes cannot call ec2" in without[f"{prefix}endpoints-in-cluster"]


def test_nothing_reaches_an_api_without_a_source(richest: Run) -> None:
    raw = copy.deepcopy(richest.declared)
    for one in raw:
        if one["type"] == "aws:eks/cluster:Cluster":
            one["inputs"]["vpcConfig"] |= {"endpointPublicAccess": False, "publicAccessCidrs": []}
    private = replace(richest, declared=raw)
    assert unreachable(private) == []
    world = World.of(private)
    rules = {name: rule for name, rule in world.ingress.items() if "api-" not in name}
    assert "nothing can connect to the cluster's API" in unreachable(private, replace(world, ingress=rules))


def test_an_existing_cluster_reaches_the_endpoints() -> None:
    raw = copy.deepcopy(STACK) | {"gpu-spot:network": {**EXISTING, "endpoints": "interface"}}
    raw["gpu-spot:services"][0]["queue"] = BROKER
    existing = stack_of(raw)
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
