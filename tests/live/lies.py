"""Credentials of one instance, and of one on-premises host, that report for all others of their group."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from contracts import names
from contracts.registry import item as registry_item
from contracts.registry.item import Worker
from lambdas.core.model import GroupRole, PurchaseOption
from pulumi_on_moto.sandbox import ACCOUNT
from tests.e2e.calls import documents
from tests.e2e.world import START, World, living, load, small
from tests.iam import Request, allows
from tests.live.on_premises import silence_the_checker

SIZE: Final = 8
MINUTES: Final = 30
HOSTS: Final = tuple(f"gpu-{number}" for number in range(SIZE))
SERVICE: Final = "services[0]"
CHANGES: Final = {
    **small(SIZE),
    f"{SERVICE}.command": ["serve"],
    f"{SERVICE}.onPremises": {
        "hosts": [
            {"name": host, "gpus": 1, "principals": [f"arn:aws:iam::{ACCOUNT}:role/{host}"]} for host in HOSTS
        ]
    },
}


@dataclass
class Liar:
    """Writes items with the credentials of a role; ``is_bound``: IAM decides, else everything is written."""

    world: World
    role: str
    context: dict[str, list[str]]
    is_bound: bool
    refused: int = 0
    written: set[str] = field(default_factory=set)

    def write(self, workers: Iterable[Worker]) -> None:
        """Write the items that are allowed."""
        dynamodb, table = self.world.clients("dynamodb"), self.world.deployment.outputs["registryTable"]
        arn = dynamodb.describe_table(TableName=table)["Table"]["TableArn"]
        policies = documents(self.world.clients, self.role)
        for worker in workers:
            context = {**self.context, "dynamodb:LeadingKeys": [worker.partition]}
            if self.is_bound and not allows(policies, Request("dynamodb:UpdateItem", arn, context)):
                self.refused += 1
                continue
            self.written.add(worker.partition)
            dynamodb.put_item(TableName=table, Item=registry_item.dump(worker))


@dataclass
class Result:
    """On-Demand capacity and that on Spot, the most and the least of the last minutes; the items refused."""

    on_demand: int
    spot: int
    refused: int
    written: list[str]


class Service:
    """A service with eight Spot instances that report, minute by minute."""

    def __init__(self, world: World) -> None:
        self.world, self.cloud, self.group = world, world.cloud, world.view.name
        self.now = START
        self.minutes: list[tuple[int, int]] = []
        silence_the_checker(world)

    def arn(self, instance: str) -> str:
        return self.cloud.registry.instance_arns + instance

    def minute(self) -> None:
        """Launch what the groups want, and send the heartbeats."""
        self.now += 60
        self.cloud.set_time(self.now)
        view, desired = self.world.view, self.cloud.desired(self.group)
        for side, wanted in zip((GroupRole.PRIMARY, GroupRole.FALLBACK), desired, strict=True):
            option = PurchaseOption.SPOT if side is GroupRole.PRIMARY else PurchaseOption.ON_DEMAND
            for _ in range(wanted - self.cloud.counted(self.group, side)):
                self.cloud.launch(self.group, side, view.instance_types[0], view.zones[0], option)
        self.cloud.heartbeat(sorted(self.cloud.alive(self.group)))

    def decide(self) -> None:
        """Run the functions."""
        self.cloud.tick_schedule()
        for run in self.cloud.run_functions():
            assert not run.error, run.error
        self.cloud.let_go(self.group)
        self.minutes.append(self.cloud.desired(self.group))

    def result(self, liar: Liar) -> Result:
        spot, on_demand = zip(*self.minutes[-10:], strict=True)
        return Result(max(on_demand), min(spot), liar.refused, sorted(liar.written))


def _start(world: World) -> Service:
    service = Service(world)
    for _ in range(20):
        service.minute()
        service.decide()
    return service


def _of_instance(service: Service, liar: Liar) -> None:
    """Say that each other Spot instance is about to be terminated, in all forms that a row ever had."""
    others = service.cloud.alive(service.group, GroupRole.PRIMARY) - {_instance(liar)}
    at = service.now
    liar.write(
        Worker(partition, one, 0, START, at, "draining", at + 60)
        for one in sorted(others)
        for partition in (registry_item.partition(service.group, service.arn(one)), service.group)
    )


def _instance(liar: Liar) -> str:
    return liar.context["ec2:SourceInstanceARN"][0].rpartition("/")[2]


def _of_host(service: Service, liar: Liar) -> None:
    """Say that a ready worker runs on each host, and a hundred on the own one."""
    name, at = names.on_premises_partition(service.group), service.now
    liar.write(
        Worker(partition, host, slot, START, at, "ready")
        for host in HOSTS
        for partition in (registry_item.partition(name, host), name)
        for slot in range(100 if host == HOSTS[0] else 1)
    )


def played(kind: str, *, is_bound: bool) -> dict[str, Any]:
    """Play half an hour of lies; return the result, as JSON values."""
    with living(load("dev", CHANGES)) as world:
        service = _start(world)
        root = f"gpu-spot-{world.deployment.stack}-{service.group}"
        if kind == "instance":
            source = sorted(service.cloud.alive(service.group, GroupRole.PRIMARY))[0]
            liar = Liar(
                world,
                _role(world, f"{root}-instance"),
                {"ec2:SourceInstanceARN": [service.arn(source)]},
                is_bound,
            )
        else:
            liar = Liar(world, _role(world, f"{root}-host-{HOSTS[0]}"), {}, is_bound)
        for _ in range(MINUTES):
            service.minute()
            (_of_instance if kind == "instance" else _of_host)(service, liar)
            service.decide()
        result = service.result(liar)
        return json.loads(json.dumps(result.__dict__))


def _role(world: World, name: str) -> str:
    return str(world.deployment.resource("aws:iam/role:Role", name).outputs["name"])
