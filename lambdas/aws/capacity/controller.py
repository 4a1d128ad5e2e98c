"""A pass of the controller over a stack: for each group observe, decide, save the memory, act."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from botocore.exceptions import BotoCoreError, ClientError

from contracts import codec, names
from contracts.group.control import Mode
from contracts.jobs.run import RunState
from lambdas.aws import settings as parameters
from lambdas.aws.budget import Budget, BudgetError
from lambdas.aws.capacity.capacity_blocks import CapacityBlocks
from lambdas.aws.capacity.capacity_service import GroupNotFoundError, ZoneUnavailableError
from lambdas.aws.capacity.capacity_updater import CapacityUpdater, FailedCapacityChange, capacity_services
from lambdas.aws.capacity.observe import Observer, View
from lambdas.aws.capacity.spot_prices import SpotPrices
from lambdas.aws.capacity.wake_up_messages import WakeUpScheduler
from lambdas.aws.items import is_aging
from lambdas.aws.memory import ConflictError, MemoryStore, StoredMemory
from lambdas.aws.passes import MAX_ATTEMPTS, REST_SECONDS, Pass, Reporting, StackResources, Verdict, Visits
from lambdas.aws.registry import RegistryReader
from lambdas.aws.settings import GroupSettings, ParameterError
from lambdas.core import runs
from lambdas.core.capacity.alarms import ON_DEMAND_ONLY
from lambdas.core.capacity.availability import Decision, decide
from lambdas.core.capacity.memory import Memory, apply_events, without_failed_request
from lambdas.core.capacity.policies import by_deadline
from lambdas.core.events import Event
from lambdas.core.model import Alarm, GroupRole, Observation
from lambdas.core.money import bill, costs

if TYPE_CHECKING:
    from mypy_boto3_ssm import SSMClient


PASS_SECONDS: Final = 55.0
"""Default time limit of a pass."""


@dataclass(frozen=True, slots=True)
class GroupOutcome:
    """The result of a pass for a group: a decision, or the error that prevented it.

    With a decision, ``errors`` occurred while it was applied. ``alarm_causes``: number of active alarms.
    ``read_errors`` did not prevent the decision: failed reads, malformed items, capacity not found in the
    preferred zone. ``is_partial``: a read failed. ``cost`` is None if a price is unknown.
    ``rests_until``: the job has ended and nothing is left of it.
    """

    group: str
    decision: Decision | None = None
    is_applied: bool = False
    alarm_causes: int = 0
    read_errors: tuple[str, ...] = ()
    is_partial: bool = False
    errors: tuple[Exception, ...] = ()
    attempts: int = 1
    cost: costs.HourlyCost | None = None
    rests_until: float = 0.0

    @property
    def error(self) -> Exception | None:
        """The first error."""
        return next(iter(self.errors), None)

    @property
    def is_retryable(self) -> bool:
        """Whether a retry may succeed: not for invalid parameters or missing groups."""
        permanent = (GroupNotFoundError, ParameterError)
        return self.is_partial or any(not isinstance(error, permanent) for error in self.errors)

    @property
    def verdict(self) -> Verdict:
        """Without a decision the same pass tries again."""
        if self.decision is None:
            return Verdict(False, self.is_retryable and not isinstance(self.error, BudgetError))
        return Verdict(True, False, self.decision.next_run_at or 0.0, self.rests_until)


@dataclass(frozen=True, slots=True)
class Controller:
    """Maintains the targets of the groups below ``root``; ``clock`` returns epoch seconds."""

    ssm: SSMClient
    root: str
    observer: Observer
    prices: SpotPrices
    blocks: CapacityBlocks
    memory_store: MemoryStore
    updater: CapacityUpdater
    wake_ups: WakeUpScheduler
    clock: Callable[[], float]

    def run(
        self,
        events: Sequence[Event] = (),
        seconds: float = PASS_SECONDS,
        reporting: Reporting[GroupOutcome] | None = None,
    ) -> list[GroupOutcome]:
        """Reconcile the groups, within ``seconds``, those of ``events`` first.

        An error in one group does not affect the others. Groups for which there is no time are the first of
        the next pass.
        """
        budget, reporting = Budget(self.clock() + seconds, self.clock), reporting or Reporting()
        groups, errors = self._parameters(budget)
        owners = self._owners(events)

        def read(chunk: Sequence[str], attempt: int) -> Callable[[str], GroupOutcome]:
            now = self.clock()
            memories = self.memory_store.prefetched(chunk, budget)
            is_last = attempt >= MAX_ATTEMPTS
            view = self.observer.read([groups[name] for name in chunk], now, budget, is_last=is_last)
            return lambda name: replace(
                self._reconcile(groups[name], events, owners, memories, view, budget), attempts=attempt
            )

        def fail(name: str, attempt: int, error: Exception) -> GroupOutcome:
            return GroupOutcome(name, errors=(error,), attempts=attempt)

        first = groups.keys() & owners.values()
        began = self.clock()
        ended = {name for name, settings in groups.items() if _may_rest(settings, began)}
        visits = Visits(self.memory_store.items, names.VISITS)
        outcomes = Pass(visits, budget, reporting, read, fail).run(groups, first, ended)
        missed = dict.fromkeys(first - {o.group for o in outcomes}, BudgetError("no time for its event"))
        unserved = [fail(name, 1, error) for name, error in {**errors, **missed}.items()]
        for outcome in unserved:
            reporting.outcome(outcome)
        return unserved + outcomes

    def _parameters(self, budget: Budget) -> tuple[dict[str, GroupSettings], dict[str, ParameterError]]:
        """Return all groups, with retries: without them the whole pass fails."""
        for _ in range(MAX_ATTEMPTS - 1):
            try:
                return parameters.read(self.ssm, self.root, budget)
            except (BotoCoreError, ClientError):
                continue
        return parameters.read(self.ssm, self.root, budget)

    def _owners(self, events: Sequence[Event]) -> dict[str, str]:
        """Return the groups of the events' instances; those left out may be of any group."""
        instance_ids = {i for event in events for i in event.instance_ids}
        try:
            return self.observer.owners(instance_ids)
        except (BotoCoreError, ClientError):
            return {}

    def _reconcile(
        self,
        settings: GroupSettings,
        events: Sequence[Event],
        owners: Mapping[str, str],
        memories: MemoryStore,
        view: View,
        budget: Budget,
    ) -> GroupOutcome:
        name, now = settings.group.name, view.now
        own_events = [e for e in events if any(owners.get(i, name) == name for i in e.instance_ids)]
        stored = memories.load(name)
        roles_to_check = _roles_to_check(stored.memory)
        observation = self.observer.observe(settings, now, budget, view, roles_to_check)
        observation = self.blocks.apply(settings, observation, now)
        next_run = _next_run(settings, now, observation)
        early = ((leaf, runs.future_error(request, now)) for leaf, request in settings.requests.items())
        more = [f"parameter {name}/{leaf}: {error}" for leaf, error in early if error]
        memory, price_error = self.prices.refresh(settings, apply_events(stored.memory, own_events, now), now)
        read_errors = (*observation.read_errors, *more, *filter(None, [price_error]))
        observation = replace(observation, spot_prices=memory.spot_prices, read_errors=read_errors)
        decision = decide(observation, settings.policy, memory, now)
        alarm_causes = len(
            decision.memory.active_alarms.difference(by_deadline.ALARMS, bill.ALARMS, (ON_DEMAND_ONLY,))
        )  # they have separate alarms
        if stored.parse_error is not None:
            reset = Alarm("memory-unreadable", f"memory of group {name!r} was reset: {stored.parse_error}")
            decision = replace(decision, actions=(reset, *decision.actions))
            alarm_causes += 1
        acts = bool(decision.actions) and settings.group.control.mode is not Mode.DRY_RUN
        wake_at, errors = self._schedule_wake_up(decision.next_run_at, stored.wake_at, view)
        changed = (decision.memory, wake_at) != (stored.memory, stored.wake_at)
        version = stored.version
        if acts or changed or next_run or stored.parse_error is not None or is_aging(stored.expires_at, now):
            # Save first: of two executions with the same observation only one acts.
            version = self.memory_store.save(name, decision.memory, wake_at, version, now)
        zone_errors: tuple[str, ...] = ()
        if next_run is not None:
            errors += self._write_run(name, next_run)
        if acts:
            results = self.updater.apply_actions(decision.actions, settings, observation, budget)
            failures = [failure for failure in results if not isinstance(failure.error, ZoneUnavailableError)]
            zone_errors = tuple(str(f.error) for f in results if isinstance(f.error, ZoneUnavailableError))
            errors += [failure.error for failure in failures]
            if failures:
                # The memory must not hold requests that AWS did not accept.
                stored = StoredMemory(decision.memory, version, wake_at)
                errors += self._remove_failed_requests(name, failures, stored, now)
        return GroupOutcome(
            group=name,
            decision=decision,
            is_applied=acts,
            alarm_causes=alarm_causes,
            read_errors=(*observation.read_errors, *zone_errors),
            is_partial=observation.is_partial,
            errors=tuple(errors),
            cost=costs.hourly_cost(
                observation, settings.group.config.on_demand_prices, settings.group.target
            ),
            rests_until=now + REST_SECONDS if _rests(settings, observation, decision) else 0.0,
        )

    def _write_run(self, name: str, run: RunState) -> list[Exception]:
        """Write a job's run, which the next pass serves; return the error: the request is kept."""
        text = json.dumps(codec.dump(run))
        try:
            self.ssm.put_parameter(
                Name=f"{self.root}/{name}/{names.PARAMETER_RUN}", Value=text, Type="String", Overwrite=True
            )
            self.wake_ups.schedule(0)
        except (BotoCoreError, ClientError) as error:
            return [error]
        return []

    def _remove_failed_requests(
        self, name: str, failures: Sequence[FailedCapacityChange], stored: StoredMemory, now: float
    ) -> list[Exception]:
        """Remove failed requests from the memory; return the errors of that."""
        conflicts: list[Exception] = []
        for _ in range(MAX_ATTEMPTS):
            try:
                if conflicts:
                    stored = self.memory_store.load(name)
                memory = stored.memory
                for failure in failures:
                    memory = without_failed_request(memory, failure.group_role, failure.not_terminated)
                self.memory_store.save(name, memory, stored.wake_at, stored.version, now)
            except ConflictError as error:
                conflicts = [error]
            except Exception as error:  # reported with the other groups
                return [error]
            else:
                return []
        return conflicts

    def _schedule_wake_up(
        self, next_run_at: float | None, scheduled_at: float | None, view: View
    ) -> tuple[float | None, list[Exception]]:
        """Schedule the next run; return its time, None if that failed, and the errors.

        Called before the memory is saved: a stored wake-up has been sent. Actions due between two runs of the
        schedule depend on it: the end of a drain, On-Demand cover that is not needed any more.
        """
        if next_run_at is None or next_run_at == scheduled_at or next_run_at in view.wake_ups:
            return next_run_at, []
        try:
            self.wake_ups.schedule(next_run_at - self.clock())  # reading takes up to a pass
            view.wake_ups.add(next_run_at)
        except Exception as error:  # it must not block capacity changes
            return None, [error]
        return next_run_at, []


def _roles_to_check(memory: Memory) -> frozenset[GroupRole]:
    """Return the roles whose last launches failed: whether they still do is read again."""
    failing = {failure.group_role for failure in memory.launch_failures}
    return frozenset(failing | ({GroupRole.PRIMARY} if memory.history.capacity_unavailable else set()))


def _next_run(settings: GroupSettings, now: float, observation: Observation | None = None) -> RunState | None:
    """Return the run that a request makes a job's newest; None if nothing changes.

    A run begins once no instance of the last one is left: ``observation``, if given, tells.
    """
    run, config = settings.run, settings.group.config
    if run is None or config.runs is None or settings.group.control.mode is not Mode.AUTOMATIC:
        return None
    is_ended = settings.has_ended
    state = runs.next_state(run, settings.requests, config.runs, settings.revision, now, is_ended=is_ended)
    is_new = state.request != run.request
    if state == run or (is_new and observation is not None and not _is_empty(observation)):
        return None
    return state


def _may_rest(settings: GroupSettings, now: float) -> bool:
    return settings.has_ended and _next_run(settings, now) is None


def _is_empty(observation: Observation) -> bool:
    return not (
        observation.is_partial
        or observation.instances
        or observation.primary_desired
        or observation.fallback_desired
    )


def _rests(settings: GroupSettings, observation: Observation, decision: Decision) -> bool:
    """Return whether nothing is left of a job that has ended, and nothing is to be done."""
    is_empty = _is_empty(observation)
    return settings.has_ended and is_empty and not decision.actions and decision.next_run_at is None


def build(client: Callable[[str], Any], config: StackResources, clock: Callable[[], float]) -> Controller:
    """Return the controller of a stack; ``client`` returns the boto3 client of a service by its name."""
    dynamodb, ec2 = client("dynamodb"), client("ec2")
    capacity = capacity_services(client("autoscaling"), ec2)
    registry = RegistryReader(dynamodb, config.registry_table, config.instance_arns)
    return Controller(
        ssm=client("ssm"),
        root=config.root,
        observer=Observer(config.stack, capacity, ec2, registry),
        prices=SpotPrices(ec2),
        blocks=CapacityBlocks(ec2),
        memory_store=MemoryStore(dynamodb, config.memory_table),
        updater=CapacityUpdater(capacity),
        wake_ups=WakeUpScheduler(client("sqs"), config.message_target),
        clock=clock,
    )
