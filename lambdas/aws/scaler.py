"""One pass of the scaler over a stack's services: see, decide, remember, write each group's target."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from contracts import names
from contracts.group import scaling_settings as settings
from contracts.group.on_demand_share import on_demand_share
from contracts.group.scaling_settings import ScalingSettings
from lambdas.aws import settings as parameters
from lambdas.aws.budget import Budget
from lambdas.aws.hosts import HostReader, Rows, hosts
from lambdas.aws.items import ConflictError, VersionedItems
from lambdas.aws.memory import MemoryStore
from lambdas.aws.registry import RegistryReader
from lambdas.aws.settings import ParameterError
from lambdas.core.capacity.memory import UNKNOWN_BOOT
from lambdas.core.scaling import memory as memory_text
from lambdas.core.scaling.decide import ScalingDecision, decide
from lambdas.core.scaling.memory import ScalingMemory
from lambdas.core.scaling.observation import observe

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import InstanceTypeDef
    from mypy_boto3_ssm import SSMClient


@dataclass(frozen=True, slots=True)
class ScalerPlace:
    """Where a stack's scaler finds what is its own: names of deployed resources."""

    stack: str
    root: str
    memory_table: str
    registry_table: str


@dataclass(frozen=True, slots=True)
class ScalerOutcome:
    """What became of one group in a pass: a decision, or the error that kept it from one.

    Neither is there where another copy of the function has decided.
    ``before`` is the target that stood there, ``target`` what it should be, in slots of the group; ``wanted``
    what the load alone asks, None where nobody knows. ``written`` says that it was changed. ``troubles`` made
    no sense and did not keep it from going on.
    """

    group: str
    decision: ScalingDecision | None = None
    before: int = 0
    target: int = 0
    wanted: int | None = None
    written: bool = False
    dry_run: bool = False
    troubles: tuple[str, ...] = ()
    error: Exception | None = None


@dataclass(frozen=True, slots=True)
class Scaler:
    """Scales the services below ``root`` that have the parameter ``scaling``; ``clock``: epoch seconds."""

    stack: str
    root: str
    ssm: SSMClient
    reader: HostReader
    controller: MemoryStore
    items: VersionedItems
    clock: Callable[[], float]

    def run(self, seconds: float) -> list[ScalerOutcome]:
        """Look after every service within ``seconds``; an error in one does not touch the others."""
        now = self.clock()
        budget = Budget(now + seconds, self.clock)
        leaves = parameters.leaves_of(self.ssm, self.root)
        services = {g: one for g, one in sorted(leaves.items()) if names.PARAMETER_SCALING in one}
        if not services:
            return []
        instances = self.reader.instances(budget)
        outcomes: list[ScalerOutcome] = []
        for group, own in services.items():
            try:
                outcomes.append(self._scale(group, own, instances.get(group, []), budget, now))
            except ConflictError:
                outcomes.append(ScalerOutcome(group))
            except Exception as error:  # whatever it is: told with the others
                outcomes.append(ScalerOutcome(group, error=error))
        return outcomes

    def _scale(
        self,
        group: str,
        leaves: Mapping[str, str],
        instances: list[InstanceTypeDef],
        budget: Budget,
        now: float,
    ) -> ScalerOutcome:
        own = _settings(group, leaves)
        before = _target(group, leaves, own)
        # The controller refuses a target above a maximum that was lowered; here it is made to fit.
        known = parameters.parse(group, {**leaves, names.PARAMETER_TARGET: str(before)})
        rows = self.reader.rows(group, budget)
        controllers = self.controller.load(group).memory
        memory, version = self._remembered(group)
        observation = observe(
            now,
            before * own.per_slot,
            rows.backlog,
            hosts(known, instances, rows, controllers, now, {}),
            {one["InstanceId"]: one["InstanceType"] for one in instances},
            controllers.slowest_boot(UNKNOWN_BOOT),
            memory.throughput,
            own.per_slot * on_demand_share(before, known.group.base, known.group.spot_percentage),
        )
        decision = decide(observation, own.bounds, memory)
        # Claim first, write after: of two copies that saw the same, one writes.
        text = {"memory": {"S": memory_text.dump(decision.memory)}}
        self.items.save(names.scaling_memory(group), text, version)
        target = own.slots(decision.target)
        return ScalerOutcome(
            group,
            decision,
            before,
            target,
            None if decision.wanted is None else own.slots(decision.wanted),
            self._write(group, leaves, target, dry_run=own.dry_run),
            own.dry_run,
            tuple(_troubles(rows)),
        )

    def _remembered(self, group: str) -> tuple[ScalingMemory, int]:
        item, version = self.items.load(names.scaling_memory(group))
        return memory_text.parse((item or {}).get("memory", {}).get("S", "")), version

    def _write(self, group: str, leaves: Mapping[str, str], target: int, *, dry_run: bool) -> bool:
        """Write a target that is another, and say whether."""
        if dry_run or leaves[names.PARAMETER_TARGET] == str(target):
            return False
        name = names.group_parameter(self.stack, group, names.PARAMETER_TARGET)
        self.ssm.put_parameter(Name=name, Value=str(target), Type="String", Overwrite=True)
        return True


def _settings(group: str, leaves: Mapping[str, str]) -> ScalingSettings:
    try:
        return settings.parse(leaves[names.PARAMETER_SCALING])
    except ValueError as error:
        raise ParameterError(f"parameter {group}/{names.PARAMETER_SCALING}: {error}") from None


def _target(group: str, leaves: Mapping[str, str], own: ScalingSettings) -> int:
    """Return the target that stands there, at most the maximum, which may have been lowered since."""
    text = leaves.get(names.PARAMETER_TARGET, "")
    if not text.isdecimal():
        told = f"is {text[:80]!r}, a whole number is needed"
        raise ParameterError(f"parameter {group}/{names.PARAMETER_TARGET} {told}")
    # Python refuses to read numbers of thousands of digits.
    return own.maximum if len(text.lstrip("0")) > len(str(own.maximum)) else min(int(text), own.maximum)


def _troubles(rows: Rows) -> list[str]:
    malformed = rows.instances.malformed + rows.elsewhere.malformed
    told = [f"{malformed} malformed rows in the worker registry"] if malformed else []
    return told + ([rows.trouble] if rows.trouble else [])


def build(client: Callable[[str], Any], place: ScalerPlace, clock: Callable[[], float]) -> Scaler:
    """Return the scaler of one stack; ``client`` gives the boto3 client of a service by its name."""
    dynamodb = client("dynamodb")
    registry = RegistryReader(dynamodb, place.registry_table)
    return Scaler(
        stack=place.stack,
        root=place.root,
        ssm=client("ssm"),
        reader=HostReader(place.stack, client("ec2"), client("autoscaling"), dynamodb, registry),
        controller=MemoryStore(dynamodb, place.memory_table),
        items=VersionedItems(dynamodb, place.memory_table),
        clock=clock,
    )
