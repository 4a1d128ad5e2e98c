"""A pass of the controller over a stack: for each group observe, decide, save the memory, act."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from botocore.exceptions import BotoCoreError, ClientError

from contracts.group.control import Mode
from lambdas.aws import settings as parameters
from lambdas.aws.budget import Budget, BudgetError
from lambdas.aws.capacity.capacity_blocks import CapacityBlocks
from lambdas.aws.capacity.capacity_service import GroupNotFoundError, ZoneUnavailableError
from lambdas.aws.capacity.capacity_updater import CapacityUpdater, FailedCapacityChange, capacity_services
from lambdas.aws.capacity.observe import Observer
from lambdas.aws.capacity.spot_prices import SpotPrices
from lambdas.aws.capacity.wake_up_messages import WakeUpScheduler
from lambdas.aws.memory import ConflictError, MemoryStore, StoredMemory
from lambdas.aws.registry import RegistryReader
from lambdas.aws.settings import GroupSettings, ParameterError
from lambdas.core.capacity.alarms import ON_DEMAND_ONLY
from lambdas.core.capacity.availability import Decision, decide
from lambdas.core.capacity.memory import apply_events, without_failed_request
from lambdas.core.capacity.policies import by_deadline
from lambdas.core.events import Event
from lambdas.core.model import Alarm
from lambdas.core.money import bill, costs

if TYPE_CHECKING:
    from mypy_boto3_ssm import SSMClient


MAX_ATTEMPTS: Final = 3
"""Attempts per group and pass, after a read error or a decision of a concurrent execution.

Three are enough to handle a notice however executions interleave: the second save was made after reading the
first, the third after reading the second, so its observation is newer than the notice.
"""
PASS_SECONDS: Final = 50.0
"""Default time limit of a pass."""


@dataclass(frozen=True, slots=True)
class ControllerConfig:
    """The deployed resources of a stack's controller."""

    stack: str
    root: str
    memory_table: str
    registry_table: str
    instance_arns: str
    queue_url: str


@dataclass(frozen=True, slots=True)
class GroupOutcome:
    """The result of a pass for a group: a decision, or the error that prevented it.

    With a decision, ``errors`` occurred while it was applied. ``alarm_causes``: number of active alarms.
    ``read_errors`` did not prevent the decision: failed reads, malformed items, capacity not found in the
    preferred zone. ``is_partial``: a read failed. ``cost`` is None if a price is unknown.
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

    @property
    def error(self) -> Exception | None:
        """The first error."""
        return next(iter(self.errors), None)

    @property
    def is_retryable(self) -> bool:
        """Whether a retry may succeed: not for invalid parameters or missing groups."""
        permanent = (GroupNotFoundError, ParameterError)
        return self.is_partial or any(not isinstance(error, permanent) for error in self.errors)


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

    def run(self, events: Sequence[Event] = (), seconds: float = PASS_SECONDS) -> list[GroupOutcome]:
        """Reconcile each group, within ``seconds``.

        An error in one group does not affect the others. Each has a share of the remaining time, and the
        order rotates each minute.
        """
        ends_at = self.clock() + seconds
        groups, errors = self._parameters()
        outcomes = [GroupOutcome(name, errors=(error,)) for name, error in errors.items()]
        pending = [(group, 1) for group in _rotated(list(groups.values()), self.clock())]
        while pending:
            now, (settings, attempt) = self.clock(), pending.pop(0)
            budget = Budget(now + (ends_at - now) / (len(pending) + 1), self.clock)
            outcome = replace(self._outcome(settings, events, budget), attempts=attempt)
            undecided = outcome.decision is None and not isinstance(outcome.error, BudgetError)
            should_retry = undecided and outcome.is_retryable and attempt < MAX_ATTEMPTS
            if should_retry and self.clock() < ends_at:
                # Retry now: a message that returns to the queue is received much later.
                pending.append((settings, attempt + 1))
            else:
                outcomes.append(outcome)
        return outcomes

    def _parameters(self) -> tuple[dict[str, GroupSettings], dict[str, ParameterError]]:
        """Return all groups, with retries: without them the whole pass fails."""
        for _ in range(MAX_ATTEMPTS - 1):
            try:
                return parameters.read(self.ssm, self.root)
            except (BotoCoreError, ClientError):
                continue
        return parameters.read(self.ssm, self.root)

    def _outcome(self, settings: GroupSettings, events: Sequence[Event], budget: Budget) -> GroupOutcome:
        try:
            return self._reconcile(settings, events, budget)
        except Exception as error:  # reported with the other groups
            return GroupOutcome(settings.group.name, errors=(error,))

    def _reconcile(self, settings: GroupSettings, events: Sequence[Event], budget: Budget) -> GroupOutcome:
        name = settings.group.name
        now = self.clock()
        stored = self.memory_store.load(name)
        observation = self.blocks.apply(settings, self.observer.observe(settings, now, budget), now)
        memory, price_error = self.prices.refresh(settings, apply_events(stored.memory, events, now), now)
        observation = replace(
            observation,
            spot_prices=memory.spot_prices,
            read_errors=(*observation.read_errors, *([price_error] if price_error else [])),
        )
        decision = decide(observation, settings.policy, memory, now)
        alarm_causes = len(
            decision.memory.active_alarms.difference(by_deadline.ALARMS, bill.ALARMS, (ON_DEMAND_ONLY,))
        )  # they have separate alarms
        if stored.parse_error is not None:
            reset = Alarm("memory-unreadable", f"memory of group {name!r} was reset: {stored.parse_error}")
            decision = replace(decision, actions=(reset, *decision.actions))
            alarm_causes += 1
        acts = bool(decision.actions) and settings.group.control.mode is not Mode.DRY_RUN
        wake_at, errors = self._schedule_wake_up(decision.next_run_at, stored.wake_at, now)
        changed = (decision.memory, wake_at) != (stored.memory, stored.wake_at)
        version = stored.version
        if acts or changed or stored.parse_error is not None:
            # Save first: of two executions with the same observation only one acts.
            version = self.memory_store.save(name, decision.memory, wake_at, version)
        zone_errors: tuple[str, ...] = ()
        if acts:
            results = self.updater.apply_actions(decision.actions, settings, observation)
            failures = [failure for failure in results if not isinstance(failure.error, ZoneUnavailableError)]
            zone_errors = tuple(str(f.error) for f in results if isinstance(f.error, ZoneUnavailableError))
            errors += [failure.error for failure in failures]
            if failures:
                # The memory must not hold requests that AWS did not accept.
                stored = StoredMemory(decision.memory, version, wake_at)
                errors += self._remove_failed_requests(name, failures, stored)
        return GroupOutcome(
            group=name,
            decision=decision,
            is_applied=acts,
            alarm_causes=alarm_causes,
            read_errors=(*observation.read_errors, *zone_errors),
            is_partial=observation.is_partial,
            errors=tuple(errors),
            cost=costs.hourly_cost(observation, settings.group.config.on_demand_prices),
        )

    def _remove_failed_requests(
        self, name: str, failures: Sequence[FailedCapacityChange], stored: StoredMemory
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
                self.memory_store.save(name, memory, stored.wake_at, stored.version)
            except ConflictError as error:
                conflicts = [error]
            except Exception as error:  # reported with the other groups
                return [error]
            else:
                return []
        return conflicts

    def _schedule_wake_up(
        self, next_run_at: float | None, scheduled_at: float | None, now: float
    ) -> tuple[float | None, list[Exception]]:
        """Schedule the next run; return its time, None if that failed, and the errors.

        Called before the memory is saved: a stored wake-up has been sent. Actions due between two runs of the
        schedule depend on it: the end of a drain, On-Demand cover that is not needed any more.
        """
        if next_run_at is None or next_run_at == scheduled_at:
            return next_run_at, []
        try:
            self.wake_ups.schedule(next_run_at - now)
        except Exception as error:  # it must not block capacity changes
            return None, [error]
        return next_run_at, []


def _rotated(groups: list[GroupSettings], now: float) -> list[GroupSettings]:
    first = int(now // 60) % len(groups) if groups else 0
    return groups[first:] + groups[:first]


def build(client: Callable[[str], Any], config: ControllerConfig, clock: Callable[[], float]) -> Controller:
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
        wake_ups=WakeUpScheduler(client("sqs"), config.queue_url),
        clock=clock,
    )
