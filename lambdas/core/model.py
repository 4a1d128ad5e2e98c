"""What the controller knows and what it can want: frozen values, no behaviour beyond counting.

Times are epoch seconds (UTC), durations seconds. Capacities and targets are in *slots*, the unit in which AWS
counts a group's capacity: an instance without a weight is one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from operator import attrgetter
from typing import Any, Final, TypeAlias

from contracts.group.control import Control
from contracts.group.replacement_requests import Wish
from contracts.group.rolling import Rolling
from contracts.registry.item import Progress


class Market(StrEnum):
    """How an instance is paid for."""

    SPOT = "spot"
    ON_DEMAND = "on-demand"


class Side(StrEnum):
    """Which of a capacity group's two Auto Scaling groups an instance belongs to."""

    PRIMARY = "primary"
    FALLBACK = "fallback"


@dataclass(frozen=True, slots=True, order=True)
class Pool:
    """A capacity pool: one instance type in one availability zone."""

    instance_type: str
    zone: str

    def __str__(self) -> str:
        return f"{self.instance_type}@{self.zone}"


@dataclass(frozen=True, slots=True)
class Instance:
    """One live instance of a group as AWS and the worker registry describe it now.

    ``ready_since`` is when the last of its expected worker slots sent its first heartbeat, ``None`` while a
    slot is missing or stale. ``deadline`` is when AWS takes the instance, ``None`` without a notice.
    ``standing_by`` says that it has booted, and works as soon as the instance before it lets go of the job.
    ``described`` is false while the group lists it and EC2 does not yet: market and age are guesses then.
    ``unclear`` says that a row of its workers makes no sense: it is not known to serve, and may all the same.
    ``given_up`` says that the group ends it of its own accord and launches its successor already: it works
    until its deadline, and no longer counts towards the desired capacity. ``slots`` is for how many it counts
    there: its weight. ``progress`` is what the training job on it tells, ``None`` where it tells nothing.
    """

    id: str
    pool: Pool
    market: Market
    side: Side
    launched_at: float
    ready_since: float | None = None
    deadline: float | None = None
    standing_by: bool = False
    described: bool = True
    given_up: bool = False
    slots: int = 1
    unclear: bool = False
    progress: Progress | None = None

    @property
    def is_heard(self) -> bool:
        """Whether its workers report: they work, or wait for their job."""
        return self.ready_since is not None or self.standing_by


FEWEST_OF_ONE_CAUSE: Final = 2
"""Instances or hosts that must show the same: one alone is no common cause."""


def is_one_cause(ill: int, population: int) -> bool:
    """Say whether it is one cause, and not each of them, that so many of a population are ill: most are."""
    return ill >= FEWEST_OF_ONE_CAUSE and 2 * ill > population


class RefusalKind(StrEnum):
    """Why AWS refused a launch; only ``CAPACITY`` is a reason to buy on-demand instead."""

    CAPACITY = "capacity"
    LIMIT = "limit"
    PERMISSION = "permission"
    CONFIGURATION = "configuration"


@dataclass(frozen=True, slots=True)
class Refusal:
    """The newest refused launch of one side, with AWS's own words."""

    side: Side
    kind: RefusalKind
    at: float
    message: str


@dataclass(frozen=True, slots=True)
class Allowance:
    """What a job's run may cost, in US dollars.

    ``on_demand`` are hourly prices by instance type, ``spot_unit`` what the group's spot prices are fractions
    of, by type.
    """

    dollars: float
    on_demand: Mapping[str, float] = field(default_factory=dict)
    spot_unit: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Group:
    """The settings of a capacity group that decisions depend on.

    ``base`` and ``spot_percentage`` describe the primary group's own on-demand share, ``maximum`` is the
    ceiling of primary and fallback together, ``drain_seconds`` the time an instance needs to finish its
    requests before its deadline. ``fallback`` is false where no on-demand group stands behind the primary.
    ``reserved`` is how much on-demand in it is paid for anyway, by a reservation. ``break_before_make`` is
    true where a successor can work only once its predecessor has let go, ``by_zone`` where the fallback takes
    orders for one zone. ``deadline`` is when its job must be done, ``None`` without a date; ``run`` is the
    revision that the job runs, ``budget`` what that run may cost, ``None``: whatever it takes.
    """

    name: str
    target: int
    maximum: int
    base: int = 0
    spot_percentage: int = 100
    drain_seconds: float = 0.0
    fallback: bool = True
    reserved: int = 0
    break_before_make: bool = False
    by_zone: bool = False
    control: Control = field(default_factory=Control)
    deadline: float | None = None
    run: str = ""
    budget: Allowance | None = None


@dataclass(frozen=True, slots=True)
class Observation:
    """Everything true about one group at one moment: desired capacities as set, and the live instances.

    With weights a side may hold more than it desires, by less than its largest instance: AWS launches until
    the desired capacity is reached (Auto Scaling guide, "Configure an Auto Scaling group to use instance
    weights"; EC2 API reference, ``LaunchTemplateOverrides``).

    ``frozen`` are the sides that take no order now, ``late`` those whose desired capacity may be read as it
    was before the last order, and no longer counts members that are released and still show.
    ``listed`` is how many slots each side counts against its desired capacity by its own list, which may hold
    members that have ended already. ``unread`` are the sides whose refusals could not be read: that none is
    known says nothing there. ``suspended`` are a side's processes that somebody has suspended, or AWS after a
    day of launches in vain. ``spot_prices`` are what spot costs now by pool (its text), as a fraction of the
    on-demand that stands in for it; empty where nobody knows. ``wishes`` are whom of the live instances the
    health checker wants replaced, the oldest wish first, and ``rolling`` what it asks while it rolls a
    release out; ``elsewhere`` for how many slots workers on premises serve now, ``None`` where they could not
    be read. ``troubles`` are what could not be read or made no sense, a line each; ``is_partial`` says that a
    read failed, which the next one may not.
    """

    group: Group
    primary_desired: int
    fallback_desired: int
    instances: tuple[Instance, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    frozen: frozenset[Side] = frozenset()
    late: frozenset[Side] = frozenset()
    listed: Mapping[Side, int] = field(default_factory=dict)
    unread: frozenset[Side] = frozenset()
    suspended: Mapping[Side, frozenset[str]] = field(default_factory=dict)
    spot_prices: Mapping[str, float] = field(default_factory=dict)
    wishes: tuple[Wish, ...] = ()
    rolling: Rolling | None = None
    elsewhere: int | None = 0
    troubles: tuple[str, ...] = ()
    is_partial: bool = False

    def on(self, side: Side) -> tuple[Instance, ...]:
        """Return the live instances of one side."""
        return tuple(i for i in self.instances if i.side is side)

    def desired(self, side: Side) -> int:
        """Return the desired capacity of one side."""
        return self.primary_desired if side is Side.PRIMARY else self.fallback_desired

    def counted(self, side: Side) -> int:
        """Return how many slots AWS counts against the desired capacity of a side, at the least."""
        return max(self.listed.get(side, 0), slots(self.staying(side)))

    def staying(self, side: Side) -> list[Instance]:
        """Return the live instances of one side that its group has not given up."""
        return [i for i in self.instances if i.side is side and not i.given_up]

    def refusal(self, side: Side) -> Refusal | None:
        """Return the newest refusal of one side, ``None`` where its newest launch succeeded."""
        return max((r for r in self.refusals if r.side is side), key=lambda r: r.at, default=None)


@dataclass(frozen=True, slots=True)
class SetDesired:
    """Set the desired capacity of one side. Never chosen so low that AWS would have to pick a victim.

    What it adds is launched in ``zone`` where that has capacity now; empty: wherever the side launches.
    """

    side: Side
    capacity: int
    reason: str
    zone: str = ""


@dataclass(frozen=True, slots=True)
class Release:
    """Terminate these instances of one side and lower its desired capacity by their ``slots``.

    ``for_good``: something is wrong with one of them, so that no warm pool is to take them back.
    """

    side: Side
    instance_ids: tuple[str, ...]
    reason: str
    slots: int
    for_good: bool = False


@dataclass(frozen=True, slots=True)
class Alarm:
    """Tell people: something that more capacity cannot mend."""

    kind: str
    reason: str


Action: TypeAlias = SetDesired | Release | Alarm


def ids(instances: Iterable[Instance]) -> tuple[str, ...]:
    """Return the instance ids, in the given order."""
    return tuple(i.id for i in instances)


_SLOTS: Final[Any] = attrgetter("slots")


def slots(instances: Iterable[Instance]) -> int:
    """Return for how many slots the instances count."""
    return sum(map(_SLOTS, instances))
