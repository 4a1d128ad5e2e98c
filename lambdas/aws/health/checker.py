"""One pass of the health checker over a stack's services: see, decide, remember, act, tell."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from contracts import names
from contracts.group import health_settings as settings
from contracts.group import release_settings as releases
from contracts.group.control import Mode
from contracts.group.health_settings import HealthSettings
from contracts.group.release_settings import Wanted
from lambdas.aws import settings as parameters
from lambdas.aws.budget import Budget
from lambdas.aws.health.memory import HealthMemoryStore, RememberedHealth
from lambdas.aws.health.remediation import Doctor
from lambdas.aws.hosts import HostReader, Rows, hosts, in_fleet
from lambdas.aws.items import ConflictError, VersionedItems
from lambdas.aws.memory import MemoryStore
from lambdas.aws.registry import RegistryReader
from lambdas.aws.settings import GroupSettings, ParameterError
from lambdas.core.health import decision as judge
from lambdas.core.health import notifications as words
from lambdas.core.health.decision import HealthDecision
from lambdas.core.health.memory import HealthMemory
from lambdas.core.health.model import Sight
from lambdas.core.rollout.memory import Rollout
from lambdas.core.rollout.state import RolloutDemand
from lambdas.core.rollout.step import RolloutStep, unasked

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import InstanceTypeDef
    from mypy_boto3_ssm import SSMClient

_ACTING = (Mode.AUTOMATIC, Mode.MANUAL)
"""What lets the controller replace: in the other modes a wish would wait."""


@dataclass(frozen=True, slots=True)
class HealthPlace:
    """Where a stack's health checker finds what is its own: names and addresses of deployed resources."""

    stack: str
    root: str
    memory_table: str
    registry_table: str
    topic: str


@dataclass(frozen=True, slots=True)
class HealthOutcome:
    """What became of one group in a pass: a decision, or the error that kept it from one.

    With a decision, ``errors`` are what went wrong while it was carried out. ``troubles`` made no sense and
    did not keep it from going on. ``version`` is that of what is remembered since.
    """

    group: str
    decision: HealthDecision | None = None
    version: int = 0
    troubles: tuple[str, ...] = ()
    errors: tuple[Exception, ...] = ()


@dataclass(frozen=True, slots=True)
class _Seen:
    """A group with its parameters and rows, before anything is decided."""

    group: GroupSettings
    health: HealthSettings
    wanted: Wanted | None
    leaves: Mapping[str, str]
    rows: Rows
    instances: tuple[InstanceTypeDef, ...]

    @property
    def name(self) -> str:
        return self.group.group.name

    @property
    def demand(self) -> RolloutDemand:
        """What the group is to hold."""
        per_slot = self.wanted.per_slot if self.wanted is not None else 1
        return RolloutDemand(self.group.group.target, self.group.group.maximum, per_slot)


@dataclass(frozen=True, slots=True)
class HealthChecker:
    """Looks after the services below ``root``; ``clock`` returns epoch seconds."""

    stack: str
    root: str
    ssm: SSMClient
    reader: HostReader
    controller: MemoryStore
    store: HealthMemoryStore
    doctor: Doctor
    clock: Callable[[], float]

    def run(self, seconds: float) -> list[HealthOutcome]:
        """Look after every service within ``seconds``; an error in one does not touch the others."""
        now = self.clock()
        budget = Budget(now + seconds, self.clock)
        leaves = parameters.leaves_of(self.ssm, self.root)
        services = {g: one for g, one in sorted(leaves.items()) if names.PARAMETER_HEALTH in one}
        if not services:
            return []
        try:
            instances = self.reader.instances(budget)
        except Exception as error:  # whatever it is: told, and looked at again in a minute
            return [HealthOutcome(group, errors=(error,)) for group in services]
        outcomes: list[HealthOutcome] = []
        seen: list[_Seen] = []
        for group, own in services.items():
            try:
                seen.append(self._see(group, own, instances.get(group, []), budget))
            except Exception as error:  # whatever it is: told with the others
                outcomes.append(HealthOutcome(group, errors=(error,)))
        count = sum(len(one.instances) + len(one.rows.elsewhere.workers) for one in seen)
        # Of one host alone nobody can say whose silence it is.
        silent = count > 1 and not any(one.rows.is_heard(now) for one in seen)
        outcomes += [self._outcome(one, now, silent=silent) for one in seen]
        return self._digest(outcomes, now)

    def _see(
        self, group: str, leaves: Mapping[str, str], instances: list[InstanceTypeDef], budget: Budget
    ) -> _Seen:
        leaf = names.PARAMETER_HEALTH
        try:
            own = settings.parse(leaves[leaf])
            leaf, wanted = names.PARAMETER_RELEASE, None
            if leaf in leaves:
                wanted = releases.parse(leaves[leaf])
        except ValueError as error:
            raise ParameterError(f"parameter {group}/{leaf}: {error}") from None
        group_settings = parameters.parse(group, leaves)
        rows = self.reader.rows(group, budget)
        return _Seen(group_settings, own, wanted, leaves, rows, tuple(instances))

    def _outcome(self, seen: _Seen, now: float, *, silent: bool) -> HealthOutcome:
        try:
            return self._look_after(seen, now, silent=silent)
        except ConflictError:
            return HealthOutcome(seen.name)  # another copy is at it, and what it does is enough
        except Exception as error:  # whatever it is: told with the others
            return HealthOutcome(seen.name, errors=(error,))

    def _look_after(self, seen: _Seen, now: float, *, silent: bool) -> HealthOutcome:
        remembered = self.store.load(seen.name)
        decision = self._decide(seen, remembered, now, silent=silent)
        version = remembered.version
        if decision.memory != remembered.memory or remembered.unreadable:
            # Claim first, act after: of two copies that saw the same, one acts.
            version = self.store.save(seen.name, decision.memory, version)
        memory, errors = self._act(seen, decision, now)
        if memory != decision.memory:
            version = self.store.save(seen.name, memory, version)
        malformed = seen.rows.instances.malformed + seen.rows.elsewhere.malformed
        troubles = [f"{malformed} malformed rows in the worker registry"] if malformed else []
        troubles += [seen.rows.trouble] if seen.rows.trouble else []
        troubles += [f"what was remembered is lost: {remembered.unreadable}"] if remembered.unreadable else []
        return HealthOutcome(
            seen.name, replace(decision, memory=memory), version, tuple(troubles), tuple(errors)
        )

    def _decide(
        self, seen: _Seen, remembered: RememberedHealth, now: float, *, silent: bool
    ) -> HealthDecision:
        """Decide; where instances are newly wished for, once more without whom their groups see to."""
        known = self.controller.load(seen.name).memory

        def decide(unfit: Mapping[str, str]) -> HealthDecision:
            sight = Sight(
                now,
                hosts(seen.group, seen.instances, seen.rows, known, now, unfit),
                seen.rows.backlog,
                known.slowest_boot(0.0),
                silent,
                seen.group.group.control.mode in _ACTING,
            )
            return judge.decide(sight, seen.health, remembered.memory, seen.wanted, seen.demand)

        decision = decide({})
        unfit: dict[str, str] = {}
        fleet = in_fleet(seen.group, seen.instances)
        while new := [w.instance for w in decision.wishes if w.instance not in unfit and w.at == int(now)]:
            found = self.reader.unfit(new, fleet)
            if not found:
                break
            # Whoever comes in the place of one that is let alone is asked for, too.
            unfit |= found
            decision = decide(unfit)
        return decision

    def _act(self, seen: _Seen, decision: HealthDecision, now: float) -> tuple[HealthMemory, list[Exception]]:
        """Carry a decision out; return what is remembered once it is, and what went wrong."""
        errors: list[Exception] = []
        memory = decision.memory
        try:
            self.doctor.wish(seen.name, decision, seen.leaves)
        except Exception as error:  # written in the next pass: what stands there is compared each time
            errors.append(error)
        for host, failure in self.doctor.restart(decision.restarts, now).items():
            memory = judge.unasked(memory, host)
            errors.append(failure)
        rollout, failures = self._roll(seen, decision.rollout, now)
        memory = replace(memory, rollout=rollout)
        errors += failures
        try:
            for one in decision.begun:
                self.doctor.tell(words.incident(self.stack, seen.name, one))
            for one in decision.over:
                self.doctor.tell(words.recovery(self.stack, seen.name, one, now))
        except Exception as error:  # told in the next pass
            errors.append(error)
        else:
            memory = judge.told(memory)
        return memory, errors

    def _roll(self, seen: _Seen, step: RolloutStep, now: float) -> tuple[Rollout, list[Exception]]:
        """Carry a step of a roll-out out; whom it could not ask it asks again."""
        asked = [one.instance for one in step.restarts]
        try:
            memory = self.doctor.roll(seen.name, step, seen.leaves)
        except Exception as error:  # written in the next pass, and nobody asked before
            return unasked(step.memory, asked), [error]
        failed = self.doctor.restart(step.restarts, now)
        return unasked(memory, failed), list(failed.values())

    def _digest(self, outcomes: list[HealthOutcome], now: float) -> list[HealthOutcome]:
        """Send the daily message of all groups that are due, as one."""
        due = {o.group: o.decision for o in outcomes if o.decision is not None and o.decision.digest_due}
        if not due:
            return outcomes
        lost = {o.group: str(o.errors[0]) for o in outcomes if o.decision is None and o.errors}
        try:
            self.doctor.tell(words.digest(self.stack, due, lost))
        except Exception as error:  # sent in the next pass
            first, *rest = outcomes
            return [replace(first, errors=(*first.errors, error)), *rest]
        return [self._digested(one, now) if one.group in due else one for one in outcomes]

    def _digested(self, outcome: HealthOutcome, now: float) -> HealthOutcome:
        decision = outcome.decision
        if decision is None:
            return outcome
        memory = judge.digested(decision.memory, now)
        try:
            version = self.store.save(outcome.group, memory, outcome.version)
        except Exception as error:  # it is sent once more
            return replace(outcome, errors=(*outcome.errors, error))
        return replace(outcome, decision=replace(decision, memory=memory), version=version)


def build(client: Callable[[str], Any], place: HealthPlace, clock: Callable[[], float]) -> HealthChecker:
    """Return the health checker of one stack; ``client`` gives the boto3 client of a service by its name."""
    dynamodb, ssm = client("dynamodb"), client("ssm")
    registry = RegistryReader(dynamodb, place.registry_table)
    return HealthChecker(
        stack=place.stack,
        root=place.root,
        ssm=ssm,
        reader=HostReader(place.stack, client("ec2"), client("autoscaling"), dynamodb, registry),
        controller=MemoryStore(dynamodb, place.memory_table),
        store=HealthMemoryStore(VersionedItems(dynamodb, place.memory_table)),
        doctor=Doctor(place.stack, ssm, dynamodb, place.registry_table, client("sns"), place.topic),
        clock=clock,
    )
