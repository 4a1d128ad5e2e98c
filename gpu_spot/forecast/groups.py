"""What is asked of the market for a group of a stack file, and what the answer comes to for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from contracts.group.on_demand_share import on_demand_share
from gpu_spot.forecast.prices import ASSUMED_SPOT, Prices
from gpu_spot.forecast.ranges import NOTHING, WEEK, Likely, Outlook
from gpu_spot.forecast.replayed import DRAWN_POOLS, MOST_POOLS, MOST_SLOTS, Question, Traces
from gpu_spot.preflight.prices import GP3_GIB_MONTH, HOURS
from infra.kubernetes import pods
from infra.schema import Capacity, Service, Settings, Training
from infra.schema.work import RunsOn
from lambdas.core.capacity.policies.ready_handover import ReadyHandover
from lambdas.core.model import Pool

_WEEK_MINUTES: Final = WEEK * 12 * 60
_DRAWN_ZONES: Final = 4
_BETWEEN_SAVES_MINUTES: Final = 10.0
"""The most between two checkpoints of ``spot_training`` (``MOST_SECONDS`` in its ``interval.py``)."""
KARPENTERS_POLICY: Final = ReadyHandover.name
"""The nearest to what Karpenter does: on-demand for each slot that spot refuses, and for no other."""


@dataclass(frozen=True, slots=True)
class GroupForecast:
    """What a group comes to: US dollars a month, shares of the time, and times a day.

    ``on_demand`` is what the same slots would cost on-demand alone; ``lost_minutes`` are the minutes of work
    of its instances that are missing or done again, a day. Money is None where a price is not known.
    ``runs_on`` says whether its slots are instances of a group or nodes that Karpenter buys.
    """

    name: str
    slots: int
    cost: Likely | None
    on_demand: float | None
    volumes: float
    availability: Likely
    interruptions: float
    lost_minutes: float
    remarks: tuple[str, ...] = ()
    runs_on: RunsOn = "instances"


def pools(capacity: Capacity, zones: Sequence[str], prices: Prices) -> list[tuple[Pool, float]]:
    """Return the pools of a group with what spot costs there, ÷ on-demand; in each zone the cheapest first.

    Unknown prices are reckoned with as usual ones: ``ASSUMED_SPOT`` of the on-demand in the place.
    """
    priced = []
    for zone in zones:
        here = [(_share(capacity, Pool(kind, zone), prices), kind) for kind in capacity.types]
        ranked = enumerate(sorted(here, key=lambda one: one[0]))
        priced += [(rank, share, Pool(kind, zone)) for rank, (share, kind) in ranked]
    return [(pool, share) for _, share, pool in sorted(priced, key=lambda one: (one[0], one[1], str(one[2])))]


def _share(capacity: Capacity, pool: Pool, prices: Prices) -> float:
    from_prices = prices.share(pool, capacity)
    return ASSUMED_SPOT if from_prices is None else from_prices


def question(
    entry: Service | Training, zones: Sequence[str], prices: Prices, recorded: Traces | None
) -> Question | None:
    """Return what is replayed for a group; None where it buys no spot."""
    capacity = entry.capacity
    spot = capacity.target - on_demand_share(
        capacity.target, capacity.on_demand_base, capacity.spot_percentage
    )
    if spot == 0:
        return None
    found = pools(capacity, zones, prices)
    places = found[:MOST_POOLS] if recorded is None else _recorded(found, recorded)
    known = list(dict.fromkeys(pool.zone for pool, _ in places))
    fallback = capacity.fallback
    return Question(
        slots=min(spot, MOST_SLOTS),
        shares=tuple(round(share, 4) for _, share in places),
        zones=tuple(known.index(pool.zone) for pool, _ in places),
        drawn=() if recorded is not None else _drawn([pool for pool, _ in places], zones),
        policy=KARPENTERS_POLICY if is_pods(entry) else fallback.policy,
        knobs=() if is_pods(entry) else tuple(sorted(fallback.knobs.items())),
        fallback=fallback.enabled,
        warm=capacity.warm_instances > 0 and not is_pods(entry),
        job=isinstance(entry, Training),
        drain_seconds=_drain_seconds(entry),
    )


def is_pods(entry: Service | Training) -> bool:
    """Tell whether an entry runs on Kubernetes, where Karpenter buys its nodes."""
    return entry.runs_on == "kubernetes"


def _drain_seconds(entry: Service | Training) -> float:
    """Return how long before a loss work ends; a pod is told to stop as soon as its node hears the notice."""
    if isinstance(entry, Training):
        return 0.0
    return pods.GRACE_SECONDS if is_pods(entry) else entry.drain_seconds


def _drawn(places: Sequence[Pool], zones: Sequence[str]) -> tuple[int, ...]:
    """Return which drawn pools stand for a group's: by zone and rank, so that fewer are a part of more."""
    taken: list[int] = []
    ranks = Counter[str]()
    for pool in places:
        wanted = ranks[pool.zone] * _DRAWN_ZONES + zones.index(pool.zone)
        ranks[pool.zone] += 1
        turns = ((wanted + turn) % DRAWN_POOLS for turn in range(DRAWN_POOLS))
        taken.append(next(one for one in turns if one not in taken))
    return tuple(taken)


def _recorded(found: Sequence[tuple[Pool, float]], recorded: Traces) -> list[tuple[Pool, float]]:
    """Return a pool for each trace: in its zone the cheapest of the group there, else the cheapest of all."""
    names = [(trace.name.partition("_")[0], trace.name.partition("_")[2]) for trace in recorded]
    return [
        (Pool(kind, zone), next((share for pool, share in found if pool.zone == zone), found[0][1]))
        for zone, kind in names
    ]


def forecast(
    entry: Service | Training, zones: Sequence[str], prices: Prices, outlook: Outlook | None
) -> GroupForecast:
    """Return what a group comes to, by the outlook for a slot of its spot."""
    capacity, target = entry.capacity, entry.capacity.target
    owned = on_demand_share(target, capacity.on_demand_base, capacity.spot_percentage)
    spot = target - owned
    cost, shortage = (NOTHING, NOTHING) if outlook is None else (outlook.cost, outlook.shortage)
    slot = prices.slot(capacity)
    month = None if slot is None else slot * HOURS
    bill = cost.times(spot).plus(Likely(owned, owned, owned))
    part = spot / target / _WEEK_MINUTES if target else 0.0
    losses, unannounced = (outlook.losses, outlook.unannounced) if outlook else (0.0, 0.0)
    again = unannounced * _BETWEEN_SAVES_MINUTES / 2 if isinstance(entry, Training) else 0.0
    disks = bill.middle * capacity.root_volume_gib + (entry.volume_gib if isinstance(entry, Training) else 0)
    return GroupForecast(
        entry.name,
        target,
        None if month is None else bill.times(month),
        None if month is None else month * target,
        disks * GP3_GIB_MONTH,
        Likely(*(max(0.0, 1 - minutes * part) for minutes in (shortage.high, shortage.middle, shortage.low))),
        losses * spot,
        (shortage.middle / 7 + again) * spot,
        tuple(_remarks(entry, zones, prices)),
        entry.runs_on,
    )


def _remarks(entry: Service | Training, zones: Sequence[str], prices: Prices) -> Iterator[str]:
    capacity = entry.capacity
    if prices.slot(capacity) is None:
        yield f"no on-demand price is known in {prices.region} for {', '.join(capacity.types)}"
    for pool, share in pools(capacity, zones, prices):
        if pool in prices.spot and share >= 1:
            yield f"{pool} saves nothing: spot costs {share:.2f} of the on-demand that stands in for it"
    if isinstance(entry, Training):
        yield "reckoned as if it ran all month; an end, a deadline or a budget makes it cheaper"
        if entry.capacity_block is not None:
            yield "its Capacity Block is paid beforehand and is not in the cost"
    elif entry.scaling is not None:
        low, high = entry.scaling.min, capacity.most_target
        yield f"reckoned at target {capacity.target}; scaling moves it between {low} and {high}"
    if capacity.fallback.reservation is not None:
        yield "its reservation is paid anyway and is not taken off"
    if not capacity.is_kept:
        yield "a fleet of type request is not replenished: reckoned as one that is"
    if is_pods(entry):
        yield from _remarks_on_pods(entry)


def _remarks_on_pods(entry: Service | Training) -> Iterator[str]:
    if entry.capacity.spot_percentage:
        yield f"Karpenter's nodes are reckoned by the policy {KARPENTERS_POLICY}, the nearest to its own"
    if isinstance(entry, Training):
        if entry.capacity.spot_percentage and entry.capacity.fallback.enabled:
            yield "once on an on-demand node it stays there until it ends, which costs more than reckoned"
        if entry.nodes > 1:
            yield f"its {entry.nodes} nodes wait for each other: lost minutes count the missing one alone"


def entries(settings: Settings) -> tuple[Service | Training, ...]:
    """Return the groups that are forecast; who prepares datasets runs for an hour or two, and is not.

    On Kubernetes a group is the nodes of an entry, which have its types and its number.
    """
    here, there = settings.on_instances, settings.on_kubernetes
    return (*here.services, *here.jobs, *there.services, *(_with_all_nodes(job) for job in there.jobs))


def _with_all_nodes(job: Training) -> Training:
    capacity = job.capacity.model_copy(update={"target": job.capacity.target * job.nodes})
    return job.model_copy(update={"capacity": capacity})
