"""A pass of the health checker over a stack's services: observe, decide, save the memory, act, notify."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from contracts import names
from contracts.group import health_settings as settings
from contracts.group import release_settings as releases
from contracts.group.control import Mode
from contracts.group.health_settings import HealthSettings
from contracts.group.release_settings import DesiredRelease
from lambdas.aws import settings as parameters
from lambdas.aws.budget import Budget
from lambdas.aws.health.memory import HealthMemoryStore
from lambdas.aws.health.remediation import RemediationExecutor
from lambdas.aws.hosts import HostReader, RegistrySnapshot, fleet_members, hosts
from lambdas.aws.items import ConflictError, VersionedItems, is_aging
from lambdas.aws.memory import MemoryStore
from lambdas.aws.passes import Pass, Reporting, StackResources, Verdict, Visits
from lambdas.aws.registry import RegistryReader
from lambdas.aws.settings import GroupSettings, ParameterError
from lambdas.core.health import decision as health_decision
from lambdas.core.health import notifications
from lambdas.core.health.decision import HealthDecision
from lambdas.core.health.memory import HealthMemory
from lambdas.core.health.model import ServiceSnapshot

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import InstanceTypeDef
    from mypy_boto3_ssm import SSMClient


@dataclass(frozen=True, slots=True)
class HealthOutcome:
    """The result of a pass for a group: a decision, or the error that prevented it.

    With a decision, ``errors`` occurred while it was applied. ``read_errors`` did not prevent the decision.
    ``version`` is the version of the stored memory.
    """

    group: str
    decision: HealthDecision | None = None
    version: int = 0
    read_errors: tuple[str, ...] = ()
    errors: tuple[Exception, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """Without an error this or another execution has decided."""
        return Verdict(self.decision is not None or not self.errors)


@dataclass(frozen=True, slots=True)
class _GroupInputs:
    """A group with its parameters, registry items and instances: the inputs of a decision."""

    group: GroupSettings
    health: HealthSettings
    desired_release: DesiredRelease | None
    parameters: Mapping[str, str]
    registry: RegistrySnapshot
    instances: tuple[InstanceTypeDef, ...]

    @property
    def name(self) -> str:
        return self.group.group.name


@dataclass(frozen=True, slots=True)
class HealthChecker:
    """Checks the services below ``root``; ``clock`` returns epoch seconds."""

    stack: str
    root: str
    ssm: SSMClient
    reader: HostReader
    controller_memory: MemoryStore
    memory_store: HealthMemoryStore
    executor: RemediationExecutor
    clock: Callable[[], float]

    def run(self, seconds: float, reporting: Reporting[HealthOutcome] | None = None) -> list[HealthOutcome]:
        """Check the services, within ``seconds``; an error in one does not affect the others.

        Services for which there is no time are the first of the next pass.
        """
        budget = Budget(self.clock() + seconds, self.clock)
        by_group = parameters.read_group_parameters(self.ssm, self.root, budget)
        services = {g: texts for g, texts in by_group.items() if names.PARAMETER_HEALTH in texts}
        if not services:
            return []
        instances = self.reader.instances(budget)

        def read(chunk: Sequence[str], _: int) -> Callable[[str], HealthOutcome]:
            now = self.clock()
            reading = replace(
                self,
                reader=self.reader.prefetched({g: services[g] for g in chunk}, instances, budget),
                controller_memory=self.controller_memory.prefetched(chunk, budget),
                memory_store=self.memory_store.prefetched(chunk, budget),
            )
            all_inputs: dict[str, _GroupInputs] = {}
            errors: dict[str, Exception] = {}
            for group in chunk:
                members = instances.get(group, [])
                try:
                    all_inputs[group] = reading._read_inputs(group, services[group], members, budget, now)
                except Exception as error:  # reported with the other groups
                    errors[group] = error
            # With a single host the cause may be the host rather than the registry.
            inputs = all_inputs.values()
            host_count = sum(len(i.instances) + len(i.registry.on_premises.workers) for i in inputs)
            is_stale = host_count > 1 and not any(i.registry.has_fresh_worker(now) for i in inputs)

            def decide(group: str) -> HealthOutcome:
                if group in errors:
                    raise errors[group]
                return reading._check(all_inputs[group], now, is_registry_stale=is_stale)

            return decide

        def fail(group: str, _: int, error: Exception) -> HealthOutcome:
            return HealthOutcome(group, errors=() if isinstance(error, ConflictError) else (error,))

        reporting = reporting or Reporting()
        visits = Visits(self.memory_store.items, names.health_memory(names.VISITS))
        outcomes = Pass(visits, budget, reporting, read, fail).run(services)
        return self._send_daily_report(outcomes, self.clock(), reporting)

    def _read_inputs(
        self,
        group: str,
        texts: Mapping[str, str],
        instances: list[InstanceTypeDef],
        budget: Budget,
        now: float,
    ) -> _GroupInputs:
        leaf = names.PARAMETER_HEALTH
        try:
            health = settings.parse(texts[leaf])
            leaf, desired_release = names.PARAMETER_RELEASE, None
            if leaf in texts:
                desired_release = releases.parse(texts[leaf])
        except ValueError as error:
            raise ParameterError(f"parameter {group}/{leaf}: {error}") from None
        group_settings = parameters.parse(group, texts)
        registry = self.reader.read_registry(group_settings, instances, budget, now)
        return _GroupInputs(group_settings, health, desired_release, texts, registry, tuple(instances))

    def _check(self, inputs: _GroupInputs, now: float, *, is_registry_stale: bool) -> HealthOutcome:
        stored = self.memory_store.load(inputs.name)
        decision = self._decide(inputs, stored.memory, now, is_registry_stale=is_registry_stale)
        version = stored.version
        if decision.memory != stored.memory or stored.parse_error or is_aging(stored.expires_at, now):
            # Save first: of two executions with the same observation only one acts.
            version = self.memory_store.save(inputs.name, decision.memory, version, now)
        memory, errors = self._apply(inputs, decision, now)
        if memory != decision.memory:
            version = self.memory_store.save(inputs.name, memory, version, now)
        read_errors = inputs.registry.errors
        read_errors += [f"memory was reset: {stored.parse_error}"] if stored.parse_error else []
        return HealthOutcome(
            inputs.name, replace(decision, memory=memory), version, tuple(read_errors), tuple(errors)
        )

    def _decide(
        self, inputs: _GroupInputs, memory: HealthMemory, now: float, *, is_registry_stale: bool
    ) -> HealthDecision:
        """Decide; repeat without the instances that their Auto Scaling group handles already."""
        controller_memory, group = self.controller_memory.load(inputs.name).memory, inputs.group.group

        def decide(exemptions: Mapping[str, str]) -> HealthDecision:
            snapshot = ServiceSnapshot(
                now,
                hosts(inputs.group, inputs.instances, inputs.registry, controller_memory, now, exemptions),
                inputs.registry.longest_queue(now),
                controller_memory.slowest_boot(0.0),
                is_registry_stale,
                group.control.mode in (Mode.AUTOMATIC, Mode.MANUAL),
                group.control.mode is Mode.AUTOMATIC,
                inputs.registry.are_requests_unknown(now),
                group.target,
                group.maximum,
            )
            return health_decision.decide(snapshot, inputs.health, memory, inputs.desired_release)

        decision = decide({})
        exemptions: dict[str, str] = {}
        fleet = fleet_members(inputs.group, inputs.instances)
        while new := [
            request.instance
            for request in decision.replacement_requests
            if request.instance not in exemptions and request.requested_at == int(now)
        ]:
            not_in_service = self.reader.not_in_service(new, fleet)
            if not not_in_service:
                break
            # Repeat: the next decision may request other instances instead.
            exemptions |= not_in_service
            decision = decide(exemptions)
        return decision

    def _apply(
        self, inputs: _GroupInputs, decision: HealthDecision, now: float
    ) -> tuple[HealthMemory, list[Exception]]:
        """Apply a decision; return the memory afterwards, and the errors."""
        errors: list[Exception] = []
        memory = decision.memory
        try:
            self.executor.write_replacement_requests(inputs.name, decision, inputs.parameters)
        except Exception as error:  # the next pass writes them: it compares the parameter again
            errors.append(error)
        for host, failure in self.executor.request_restarts(decision.restarts, now).items():
            memory = health_decision.without_remediation(memory, host)
            errors.append(failure)
        rollout, failures = self.executor.apply_rollout(inputs.name, decision.rollout, inputs.parameters, now)
        memory = replace(memory, rollout=rollout)
        errors += failures
        messages = notifications.messages(self.stack, inputs.name, decision, now)
        unsent = list(messages)
        try:
            while unsent:
                self.executor.notify(messages[unsent[0]])
                del unsent[0]
        except Exception as error:  # the rest is sent in the next pass
            errors.append(error)
        return health_decision.mark_notified(memory, unsent), errors

    def _send_daily_report(
        self, outcomes: list[HealthOutcome], now: float, reporting: Reporting[HealthOutcome]
    ) -> list[HealthOutcome]:
        """Send one daily report for all groups that are due."""
        decisions = {
            o.group: o.decision for o in outcomes if o.decision is not None and o.decision.is_daily_report_due
        }
        if not decisions:
            return outcomes
        failed = {o.group: str(o.errors[0]) for o in outcomes if o.decision is None and o.errors}
        try:
            self.executor.notify(notifications.daily_report(self.stack, decisions, failed))
        except Exception as error:  # sent in the next pass
            first, *rest = outcomes
            reporting.outcome(HealthOutcome(first.group, errors=(error,)))
            return [replace(first, errors=(*first.errors, error)), *rest]
        return [self._mark_reported(o, now) if o.group in decisions else o for o in outcomes]

    def _mark_reported(self, outcome: HealthOutcome, now: float) -> HealthOutcome:
        decision = outcome.decision
        if decision is None:
            return outcome
        memory = health_decision.mark_daily_report_sent(decision.memory, now)
        try:
            version = self.memory_store.save(outcome.group, memory, outcome.version, now)
        except Exception as error:  # the report is sent again
            return replace(outcome, errors=(*outcome.errors, error))
        return replace(outcome, decision=replace(decision, memory=memory), version=version)


def build(client: Callable[[str], Any], config: StackResources, clock: Callable[[], float]) -> HealthChecker:
    """Return the health checker of a stack; ``client`` returns the boto3 client of a service by its name."""
    dynamodb, ssm = client("dynamodb"), client("ssm")
    registry = RegistryReader(dynamodb, config.registry_table, config.instance_arns)
    return HealthChecker(
        stack=config.stack,
        root=config.root,
        ssm=ssm,
        reader=HostReader(config.stack, client("ec2"), client("autoscaling"), registry),
        controller_memory=MemoryStore(dynamodb, config.memory_table),
        memory_store=HealthMemoryStore(VersionedItems(dynamodb, config.memory_table)),
        executor=RemediationExecutor(
            config.stack, ssm, dynamodb, config.registry_table, client("sns"), config.message_target
        ),
        clock=clock,
    )
