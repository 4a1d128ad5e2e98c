"""A pass of the scaler over a stack's services: observe, decide, save the memory, write the target."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from contracts import names
from contracts.group import scaling_settings as settings
from contracts.group.scaling_settings import ScalingSettings
from contracts.group.warm_pool import on_demand_share
from lambdas.aws import settings as parameters
from lambdas.aws.budget import Budget
from lambdas.aws.hosts import HostReader, hosts
from lambdas.aws.items import ConflictError, VersionedItems
from lambdas.aws.load_sources import LoadReader
from lambdas.aws.memory import MemoryStore
from lambdas.aws.passes import Pass, Reporting, StackResources, Verdict, Visits
from lambdas.aws.registry import RegistryReader
from lambdas.aws.settings import ParameterError
from lambdas.core.capacity.memory import DEFAULT_BOOT_SECONDS
from lambdas.core.scaling import memory as memory_text
from lambdas.core.scaling.decide import ScalingDecision, decide
from lambdas.core.scaling.memory import ScalingMemory
from lambdas.core.scaling.observation import observe

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import InstanceTypeDef
    from mypy_boto3_ssm import SSMClient


@dataclass(frozen=True, slots=True)
class ScalerOutcome:
    """The result of a pass for a group: a decision, or the error that prevented it.

    Neither is set if another execution of the function has decided. ``previous_target`` and ``target`` are in
    slots of the group; ``desired`` is the target for the load alone, None if unknown. ``is_written``: the
    target was changed. ``read_errors`` did not prevent the decision.
    """

    group: str
    decision: ScalingDecision | None = None
    previous_target: int = 0
    target: int = 0
    desired: int | None = None
    is_written: bool = False
    dry_run: bool = False
    read_errors: tuple[str, ...] = ()
    error: Exception | None = None

    @property
    def verdict(self) -> Verdict:
        """Without an error this or another execution has decided."""
        return Verdict(self.error is None)


@dataclass(frozen=True, slots=True)
class Scaler:
    """Scales the services below ``root`` with a parameter ``scaling``; ``clock`` returns epoch seconds."""

    stack: str
    root: str
    ssm: SSMClient
    reader: HostReader
    loads: LoadReader
    controller_memory: MemoryStore
    items: VersionedItems
    clock: Callable[[], float]

    def run(self, seconds: float, reporting: Reporting[ScalerOutcome] | None = None) -> list[ScalerOutcome]:
        """Scale the services, within ``seconds``; an error in one does not affect the others.

        Services for which there is no time are the first of the next pass.
        """
        budget = Budget(self.clock() + seconds, self.clock)
        by_group = parameters.read_group_parameters(self.ssm, self.root, budget)
        services = {g: texts for g, texts in by_group.items() if names.PARAMETER_SCALING in texts}
        if not services:
            return []
        instances = self.reader.instances(budget)

        def read(chunk: Sequence[str], _: int) -> Callable[[str], ScalerOutcome]:
            now = self.clock()
            reading = replace(
                self,
                reader=self.reader.prefetched({g: services[g] for g in chunk}, instances, budget),
                controller_memory=self.controller_memory.prefetched(chunk, budget),
                items=self.items.prefetched(map(names.scaling_memory, chunk), budget),
            )
            return lambda group: reading._scale(group, services[group], instances.get(group, []), budget, now)

        def fail(group: str, _: int, error: Exception) -> ScalerOutcome:
            return ScalerOutcome(group, error=None if isinstance(error, ConflictError) else error)

        visits = Visits(self.items, names.scaling_memory(names.VISITS))
        return Pass(visits, budget, reporting or Reporting(), read, fail).run(services)

    def _scale(
        self,
        group: str,
        texts: Mapping[str, str],
        instances: list[InstanceTypeDef],
        budget: Budget,
        now: float,
    ) -> ScalerOutcome:
        scaling = _settings(group, texts)
        target_before = _target(group, texts, scaling)
        # Parsing refuses a target above a maximum that was lowered since.
        group_settings = parameters.parse(group, {**texts, names.PARAMETER_TARGET: str(target_before)})
        config = group_settings.group.config
        registry = self.reader.read_registry(group_settings, instances, budget, now)
        controller_memory = self.controller_memory.load(group).memory
        memory, version = self._load_memory(group)
        source, load_errors = self.loads.source(group, scaling, registry, now)
        observation = observe(
            now,
            target_before * scaling.per_slot,
            source,
            hosts(group_settings, instances, registry, controller_memory, now, {}),
            {instance["InstanceId"]: instance["InstanceType"] for instance in instances},
            controller_memory.slowest_boot(DEFAULT_BOOT_SECONDS),
            memory.throughput,
            scaling.per_slot * on_demand_share(target_before, config.base, config.spot_percentage),
        )
        decision = decide(observation, scaling.bounds, memory)
        # Save first: of two executions with the same observation only one writes the target.
        attributes = {"memory": {"S": memory_text.dump(decision.memory)}}
        self.items.save(names.scaling_memory(group), attributes, version, now)
        target = scaling.slots(decision.target)
        return ScalerOutcome(
            group,
            decision,
            target_before,
            target,
            None if decision.desired is None else scaling.slots(decision.desired),
            self._write(group, texts, target, dry_run=scaling.dry_run),
            scaling.dry_run,
            (*registry.errors, *load_errors),
        )

    def _load_memory(self, group: str) -> tuple[ScalingMemory, int]:
        item, version = self.items.load(names.scaling_memory(group))
        return memory_text.parse((item or {}).get("memory", {}).get("S", "")), version

    def _write(self, group: str, texts: Mapping[str, str], target: int, *, dry_run: bool) -> bool:
        """Write the target if it differs from the parameter; return whether it was written."""
        if dry_run or texts[names.PARAMETER_TARGET] == str(target):
            return False
        name = names.group_parameter(self.stack, group, names.PARAMETER_TARGET)
        self.ssm.put_parameter(Name=name, Value=str(target), Type="String", Overwrite=True)
        return True


def _settings(group: str, texts: Mapping[str, str]) -> ScalingSettings:
    try:
        return settings.parse(texts[names.PARAMETER_SCALING])
    except ValueError as error:
        raise ParameterError(f"parameter {group}/{names.PARAMETER_SCALING}: {error}") from None


def _target(group: str, texts: Mapping[str, str], scaling: ScalingSettings) -> int:
    """Return the target in the parameter, limited to the maximum, which may have been lowered since."""
    text = texts.get(names.PARAMETER_TARGET, "")
    if not text.isdecimal():
        raise ParameterError(
            f"parameter {group}/{names.PARAMETER_TARGET} must be a whole number, not {text[:80]!r}"
        )
    # Python refuses to parse numbers with thousands of digits.
    maximum = scaling.maximum
    return maximum if len(text.lstrip("0")) > len(str(maximum)) else min(int(text), maximum)


def build(client: Callable[[str], Any], config: StackResources, clock: Callable[[], float]) -> Scaler:
    """Return the scaler of a stack; ``client`` returns the boto3 client of a service by its name."""
    dynamodb = client("dynamodb")
    registry = RegistryReader(dynamodb, config.registry_table, config.instance_arns)
    return Scaler(
        stack=config.stack,
        root=config.root,
        ssm=client("ssm"),
        reader=HostReader(config.stack, client("ec2"), client("autoscaling"), registry),
        loads=LoadReader(config.stack, client("cloudwatch")),
        controller_memory=MemoryStore(dynamodb, config.memory_table),
        items=VersionedItems(dynamodb, config.memory_table),
        clock=clock,
    )
