"""One pass of the controller over a stack: read the groups, and for each observe, decide, remember, act."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from botocore.exceptions import BotoCoreError, ClientError

from contracts.group.control import Mode
from lambdas.aws import settings as parameters
from lambdas.aws.budget import Budget, BudgetError
from lambdas.aws.capacity.capacity_blocks import CapacityBlocks
from lambdas.aws.capacity.capacity_service import GoneError, NotPlacedError
from lambdas.aws.capacity.capacity_updater import Actor, Failure
from lambdas.aws.capacity.observe import Observer
from lambdas.aws.capacity.services import capacity_services
from lambdas.aws.capacity.spot_prices import SpotPrices
from lambdas.aws.capacity.wake_up_messages import AlarmClock
from lambdas.aws.memory import ConflictError, MemoryStore, Remembered
from lambdas.aws.registry import RegistryReader
from lambdas.aws.settings import GroupSettings, ParameterError
from lambdas.core.capacity.availability import Decision, decide
from lambdas.core.capacity.memory import note, untaken
from lambdas.core.capacity.policies import by_deadline
from lambdas.core.events import Event
from lambdas.core.model import Alarm
from lambdas.core.money import bill, costs

if TYPE_CHECKING:
    from mypy_boto3_ssm import SSMClient


MOST_LOOKS: Final = 3
"""So often a pass looks at a group that it could not read, or about which another copy decided meanwhile.

Three are enough for a notice to be known however the copies mix: who is first with the second save has read
the first one's, who is first with the third has read that, and so looked after the notice was seen."""
PASS_SECONDS: Final = 50.0
"""What a pass may take where nobody says otherwise."""


@dataclass(frozen=True, slots=True)
class StackPlace:
    """Where a stack's controller finds what is its own: names and addresses of deployed resources."""

    stack: str
    root: str
    memory_table: str
    registry_table: str
    queue_url: str


@dataclass(frozen=True, slots=True)
class GroupOutcome:
    """What became of one group in a pass: a decision, or the error that kept it from one.

    With a decision, ``errors`` are what went wrong while it was carried out. ``causes`` is how many causes
    of alarms stand, ``looks`` how often the group was looked at. ``troubles`` are what could not be read,
    made no sense, or was refused where it was wanted, and did not keep it from going on; ``is_partial`` that
    a read failed. ``cost`` is None where a price is not known.
    """

    group: str
    decision: Decision | None = None
    carried_out: bool = False
    causes: int = 0
    troubles: tuple[str, ...] = ()
    is_partial: bool = False
    errors: tuple[Exception, ...] = ()
    looks: int = 1
    cost: costs.HourlyCost | None = None

    @property
    def error(self) -> Exception | None:
        """The first of the errors."""
        return next(iter(self.errors), None)

    @property
    def is_worth_another_try(self) -> bool:
        """Whether something failed that may pass by itself: parameters and what is gone do not."""
        lasting = (GoneError, ParameterError)
        return self.is_partial or any(not isinstance(error, lasting) for error in self.errors)


@dataclass(frozen=True, slots=True)
class Controller:
    """Keeps the groups below ``root`` at their targets; ``clock`` returns epoch seconds."""

    ssm: SSMClient
    root: str
    observer: Observer
    prices: SpotPrices
    blocks: CapacityBlocks
    store: MemoryStore
    actor: Actor
    alarm_clock: AlarmClock
    clock: Callable[[], float]

    def run(self, events: Sequence[Event] = (), seconds: float = PASS_SECONDS) -> list[GroupOutcome]:
        """Look after every group, within ``seconds``.

        An error in one group is its outcome and does not touch the others: each has its share of the time
        that is left, and another is first each minute.
        """
        ends_at = self.clock() + seconds
        groups, errors = self._parameters()
        outcomes = [GroupOutcome(name, errors=(error,)) for name, error in errors.items()]
        waiting = [(group, 1) for group in _rotated(list(groups.values()), self.clock())]
        while waiting:
            now, (settings, looks) = self.clock(), waiting.pop(0)
            budget = Budget(now + (ends_at - now) / (len(waiting) + 1), self.clock)
            outcome = replace(self._outcome(settings, events, budget), looks=looks)
            undecided = outcome.decision is None and not isinstance(outcome.error, BudgetError)
            again = undecided and outcome.is_worth_another_try and looks < MOST_LOOKS
            if again and self.clock() < ends_at:
                # Another copy was first, or a read failed: a message that goes back waits far longer.
                waiting.append((settings, looks + 1))
            else:
                outcomes.append(outcome)
        return outcomes

    def _parameters(self) -> tuple[dict[str, GroupSettings], dict[str, ParameterError]]:
        """Return all groups, read again where that fails: without them the whole pass would."""
        for _ in range(MOST_LOOKS - 1):
            try:
                return parameters.read(self.ssm, self.root)
            except (BotoCoreError, ClientError):
                continue
        return parameters.read(self.ssm, self.root)

    def _outcome(self, settings: GroupSettings, events: Sequence[Event], budget: Budget) -> GroupOutcome:
        try:
            return self._look_after(settings, events, budget)
        except Exception as error:  # whatever it is: told with the others
            return GroupOutcome(settings.group.name, errors=(error,))

    def _look_after(self, settings: GroupSettings, events: Sequence[Event], budget: Budget) -> GroupOutcome:
        name = settings.group.name
        now = self.clock()
        remembered = self.store.load(name)
        observation = self.blocks.apply(settings, self.observer.observe(settings, now, budget), now)
        memory, trouble = self.prices.refresh(settings, note(remembered.memory, events, now), now)
        observation = replace(
            observation,
            spot_prices=memory.spot_prices,
            troubles=(*observation.troubles, *([trouble] if trouble else [])),
        )
        decision = decide(observation, settings.policy, memory, now)
        causes = len(decision.memory.alarmed.difference(by_deadline.ALARMS, bill.ALARMS))  # these ring alone
        if remembered.unreadable is not None:
            lost = Alarm("memory-unreadable", f"memory of group {name!r} is lost: {remembered.unreadable}")
            decision, causes = replace(decision, actions=(lost, *decision.actions)), causes + 1
        acts = bool(decision.actions) and settings.group.control.mode is not Mode.DRY_RUN
        wake_at, errors = self._wake(decision.wake_at, remembered.wake_at, now)
        changed = (decision.memory, wake_at) != (remembered.memory, remembered.wake_at)
        version = remembered.version
        if acts or changed or remembered.unreadable is not None:
            # Claim first, act after: of two copies that saw the same, one acts.
            version = self.store.save(name, decision.memory, wake_at, version)
        elsewhere: tuple[str, ...] = ()
        if acts:
            told = self.actor.perform(decision.actions, settings, observation)
            failures = [failure for failure in told if not isinstance(failure.error, NotPlacedError)]
            elsewhere = tuple(str(f.error) for f in told if isinstance(f.error, NotPlacedError))
            errors += [failure.error for failure in failures]
            if failures:
                # What did not happen must not be believed until it is forgotten.
                errors += self._unmark(name, failures, Remembered(decision.memory, version, wake_at))
        return GroupOutcome(
            group=name,
            decision=decision,
            carried_out=acts,
            causes=causes,
            troubles=(*observation.troubles, *elsewhere),
            is_partial=observation.is_partial,
            errors=tuple(errors),
            cost=costs.hourly(observation, settings.config.on_demand_prices),
        )

    def _unmark(self, name: str, failures: Sequence[Failure], claimed: Remembered) -> list[Exception]:
        """Take back what was remembered of orders that failed; return what went wrong with that, too."""
        newer: list[Exception] = []
        for _ in range(MOST_LOOKS):
            try:
                if newer:
                    claimed = self.store.load(name)
                memory = claimed.memory
                for failure in failures:
                    memory = untaken(memory, failure.side, failure.standing)
                self.store.save(name, memory, claimed.wake_at, claimed.version)
            except ConflictError as error:
                newer = [error]
            except Exception as error:  # whatever it is: told with the others
                return [error]
            else:
                return []
        return newer

    def _wake(
        self, wake_at: float | None, sent: float | None, now: float
    ) -> tuple[float | None, list[Exception]]:
        """Set the alarm clock; return what may be remembered as set, and what went wrong.

        It goes before the memory: a wake-up that is remembered has been sent. What is due between two minutes
        of the schedule hangs on it: cover that pays no longer, the end of a drain.
        """
        if wake_at is None or wake_at == sent:
            return wake_at, []
        try:
            self.alarm_clock.set(wake_at - now)
        except Exception as error:  # whatever it is: it must not hold up capacity
            return None, [error]
        return wake_at, []


def _rotated(groups: list[GroupSettings], now: float) -> list[GroupSettings]:
    first = int(now // 60) % len(groups) if groups else 0
    return groups[first:] + groups[:first]


def build(client: Callable[[str], Any], place: StackPlace, clock: Callable[[], float]) -> Controller:
    """Return the controller of one stack; ``client`` gives the boto3 client of a service by its name."""
    dynamodb, ec2 = client("dynamodb"), client("ec2")
    capacity = capacity_services(client("autoscaling"), ec2)
    return Controller(
        ssm=client("ssm"),
        root=place.root,
        observer=Observer(place.stack, capacity, ec2, RegistryReader(dynamodb, place.registry_table)),
        prices=SpotPrices(ec2),
        blocks=CapacityBlocks(ec2),
        store=MemoryStore(dynamodb, place.memory_table),
        actor=Actor(capacity),
        alarm_clock=AlarmClock(client("sqs"), place.queue_url),
        clock=clock,
    )
