"""One pass of the controller over a stack: read the groups, and for each observe, decide, remember, act."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from lambdas.aws import settings as parameters
from lambdas.aws.act import Actor
from lambdas.aws.alarm_clock import AlarmClock
from lambdas.aws.auto_scaling import AutoScalingService
from lambdas.aws.budget import Budget
from lambdas.aws.memory import MemoryStore
from lambdas.aws.observe import Observer
from lambdas.aws.registry import RegistryReader
from lambdas.aws.settings import AUTO_SCALING, SPOT_FLEET, GroupSettings
from lambdas.aws.side import CapacityService
from lambdas.aws.spot_fleet import SpotFleetService
from lambdas.core.availability import Decision, decide
from lambdas.core.events import Event
from lambdas.core.memory import note
from lambdas.core.model import Alarm, Mode

if TYPE_CHECKING:
    from mypy_boto3_ssm import SSMClient


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

    ``troubles`` are what could not be read, or made no sense, and did not keep it from deciding.
    """

    group: str
    decision: Decision | None = None
    carried_out: bool = False
    troubles: tuple[str, ...] = ()
    error: Exception | None = None


@dataclass(frozen=True, slots=True)
class Controller:
    """Keeps the groups below ``root`` at their targets; ``clock`` returns epoch seconds."""

    ssm: SSMClient
    root: str
    observer: Observer
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
        groups, errors = parameters.read(self.ssm, self.root)
        outcomes = [GroupOutcome(name, error=error) for name, error in errors.items()]
        waiting = _rotated(list(groups.values()), self.clock())
        while waiting:
            now, settings = self.clock(), waiting.pop(0)
            budget = Budget(now + (ends_at - now) / (len(waiting) + 1), self.clock)
            try:
                outcomes.append(self._look_after(settings, events, budget))
            except Exception as error:  # whatever it is: reported, and the queue retries
                outcomes.append(GroupOutcome(settings.group.name, error=error))
        return outcomes

    def _look_after(self, settings: GroupSettings, events: Sequence[Event], budget: Budget) -> GroupOutcome:
        name = settings.group.name
        now = self.clock()
        remembered = self.store.load(name)
        observation = self.observer.observe(settings, now, budget)
        decision = decide(observation, settings.policy, note(remembered.memory, events, now), now)
        if remembered.unreadable is not None:
            lost = Alarm("memory-unreadable", f"memory of group {name!r} is lost: {remembered.unreadable}")
            decision = replace(decision, actions=(lost, *decision.actions))
        acts = bool(decision.actions) and settings.group.control.mode is not Mode.DRY_RUN
        changed = (decision.memory, decision.wake_at) != (remembered.memory, remembered.wake_at)
        if acts or changed or remembered.unreadable is not None:
            # Claim first, act after: of two copies that saw the same, one acts.
            self.store.save(name, decision.memory, decision.wake_at, remembered.version)
        if acts:
            for action in decision.actions:
                self.actor.perform(action, settings)
        # After the actions, which a queue that refuses must not hold up.
        if decision.wake_at is not None and decision.wake_at != remembered.wake_at:
            # What is due between two minutes of the schedule: a just-in-time start, the end of a drain.
            self.alarm_clock.set(decision.wake_at - now)
        return GroupOutcome(name, decision, carried_out=acts, troubles=observation.troubles)


def _rotated(groups: list[GroupSettings], now: float) -> list[GroupSettings]:
    first = int(now // 60) % len(groups) if groups else 0
    return groups[first:] + groups[:first]


def build(client: Callable[[str], Any], place: StackPlace, clock: Callable[[], float]) -> Controller:
    """Return the controller of one stack; ``client`` gives the boto3 client of a service by its name."""
    dynamodb, ec2 = client("dynamodb"), client("ec2")
    capacity: dict[str, CapacityService] = {
        AUTO_SCALING: AutoScalingService(client("autoscaling")),
        SPOT_FLEET: SpotFleetService(ec2),
    }
    return Controller(
        ssm=client("ssm"),
        root=place.root,
        observer=Observer(place.stack, capacity, ec2, RegistryReader(dynamodb, place.registry_table)),
        store=MemoryStore(dynamodb, place.memory_table),
        actor=Actor(capacity),
        alarm_clock=AlarmClock(client("sqs"), place.queue_url),
        clock=clock,
    )
