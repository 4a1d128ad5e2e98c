"""The market question of a group in a stack file, and the group's forecast from the answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from contracts.group.on_demand_share import on_demand_share
from gpu_spot.forecast.prices import ASSUMED_SPOT, Prices
from gpu_spot.forecast.ranges import NOTHING, WEEK, Range, SlotForecast
from gpu_spot.forecast.replayed import DRAWN_POOLS, MAX_POOLS, MAX_SLOTS, Question, Traces
from gpu_spot.preflight.prices import GP3_GIB_MONTH, HOURS
from infra.kubernetes import pods
from infra.schema import Capacity, Service, Settings, Training
from infra.schema.work import RunsOn
from lambdas.core.capacity.policies.ready_handover import ReadyHandover
from lambdas.core.model import Pool

_WEEK_MINUTES: Final = WEEK * 12 * 60
_DRAWN_ZONES: Final = 4
_CHECKPOINT_MINUTES: Final = 10.0
"""Maximum interval of checkpoints of ``spot_training`` (see its ``interval.py``)."""
KARPENTER_POLICY: Final = ReadyHandover.name
"""The policy closest to Karpenter: On-Demand for each slot that Spot cannot fill, and no other."""


@dataclass(frozen=True, slots=True)
class GroupForecast:
    """The forecast of a group: US dollars per month, shares of the time, and rates per day.

    ``on_demand`` is the cost of the same slots with On-Demand only; ``lost_minutes`` are the minutes of work
    per day that are missing or repeated. Costs are None if a price is unknown. ``runs_on`` says whether slots
    are instances of a group or nodes that Karpenter launches.
    """

    name: str
    slots: int
    cost: Range | None
    on_demand: float | None
    volumes: float
    availability: Range
    interruptions: float
    lost_minutes: float
    notes: tuple[str, ...] = ()
    runs_on: RunsOn = "instances"


def pools(capacity: Capacity, zones: Sequence[str], prices: Prices) -> list[tuple[Pool, float]]:
    """Return the pools of a group with Spot price ÷ On-Demand price, in each zone the cheapest first.

    An unknown price is replaced by ``ASSUMED_SPOT`` of the On-Demand price.
    """
    priced = []
    for zone in zones:
        shares = [(_share(capacity, Pool(kind, zone), prices), kind) for kind in capacity.types]
        ranked = enumerate(sorted(shares, key=lambda share_and_type: share_and_type[0]))
        priced += [(rank, share, Pool(kind, zone)) for rank, (share, kind) in ranked]
    return [
        (pool, share)
        for _, share, pool in sorted(priced, key=lambda entry: (entry[0], entry[1], str(entry[2])))
    ]


def _share(capacity: Capacity, pool: Pool, prices: Prices) -> float:
    from_prices = prices.share(pool, capacity)
    return ASSUMED_SPOT if from_prices is None else from_prices


def question(
    entry: Service | Training, zones: Sequence[str], prices: Prices, recorded: Traces | None
) -> Question | None:
    """Return the market question of a group; None if it uses no Spot."""
    capacity = entry.capacity
    spot = capacity.target - on_demand_share(
        capacity.target, capacity.on_demand_base, capacity.spot_percentage
    )
    if spot == 0:
        return None
    all_pools = pools(capacity, zones, prices)
    replayed = all_pools[:MAX_POOLS] if recorded is None else _recorded_pools(all_pools, recorded)
    zone_names = list(dict.fromkeys(pool.zone for pool, _ in replayed))
    fallback = capacity.fallback
    return Question(
        slots=min(spot, MAX_SLOTS),
        shares=tuple(round(share, 4) for _, share in replayed),
        zones=tuple(zone_names.index(pool.zone) for pool, _ in replayed),
        drawn=() if recorded is not None else _drawn_pools([pool for pool, _ in replayed], zones),
        policy=KARPENTER_POLICY if is_on_kubernetes(entry) else fallback.policy,
        policy_parameters=()
        if is_on_kubernetes(entry)
        else tuple(sorted(fallback.policy_parameters.items())),
        fallback=fallback.enabled,
        warm=capacity.warm_instances > 0 and not is_on_kubernetes(entry),
        job=isinstance(entry, Training),
        drain_seconds=_drain_seconds(entry),
    )


def is_on_kubernetes(entry: Service | Training) -> bool:
    """Return whether an entry runs on Kubernetes, on nodes that Karpenter launches."""
    return entry.runs_on == "kubernetes"


def _drain_seconds(entry: Service | Training) -> float:
    """Return how long before its end an instance stops work; a pod stops when its node gets the notice."""
    if isinstance(entry, Training):
        return 0.0
    return pods.GRACE_SECONDS if is_on_kubernetes(entry) else entry.drain_seconds


def _drawn_pools(pools: Sequence[Pool], zones: Sequence[str]) -> tuple[int, ...]:
    """Return the drawn pools that represent a group's pools: by zone and rank, so that subsets match."""
    drawn: list[int] = []
    ranks = Counter[str]()
    for pool in pools:
        preferred = ranks[pool.zone] * _DRAWN_ZONES + zones.index(pool.zone)
        ranks[pool.zone] += 1
        candidates = ((preferred + offset) % DRAWN_POOLS for offset in range(DRAWN_POOLS))
        drawn.append(next(candidate for candidate in candidates if candidate not in drawn))
    return tuple(drawn)


def _recorded_pools(pools: Sequence[tuple[Pool, float]], recorded: Traces) -> list[tuple[Pool, float]]:
    """Return a pool for each trace: the cheapest of the group in its zone, else the cheapest of all."""
    names = [(trace.name.partition("_")[0], trace.name.partition("_")[2]) for trace in recorded]
    return [
        (Pool(kind, zone), next((share for pool, share in pools if pool.zone == zone), pools[0][1]))
        for zone, kind in names
    ]


def forecast(
    entry: Service | Training, zones: Sequence[str], prices: Prices, slot_forecast: SlotForecast | None
) -> GroupForecast:
    """Return the forecast of a group from that of a Spot slot."""
    capacity, target = entry.capacity, entry.capacity.target
    owned = on_demand_share(target, capacity.on_demand_base, capacity.spot_percentage)
    spot = target - owned
    cost, shortage = (
        (NOTHING, NOTHING) if slot_forecast is None else (slot_forecast.cost, slot_forecast.shortage)
    )
    slot = prices.slot(capacity)
    month = None if slot is None else slot * HOURS
    bill = cost.times(spot).plus(Range(owned, owned, owned))
    part = spot / target / _WEEK_MINUTES if target else 0.0
    losses, unannounced = (slot_forecast.losses, slot_forecast.unannounced) if slot_forecast else (0.0, 0.0)
    again = unannounced * _CHECKPOINT_MINUTES / 2 if isinstance(entry, Training) else 0.0
    disks = bill.middle * capacity.root_volume_gib + (entry.volume_gib if isinstance(entry, Training) else 0)
    return GroupForecast(
        entry.name,
        target,
        None if month is None else bill.times(month),
        None if month is None else month * target,
        disks * GP3_GIB_MONTH,
        Range(*(max(0.0, 1 - minutes * part) for minutes in (shortage.high, shortage.middle, shortage.low))),
        losses * spot,
        (shortage.middle / 7 + again) * spot,
        tuple(_notes(entry, zones, prices)),
        entry.runs_on,
    )


def _notes(entry: Service | Training, zones: Sequence[str], prices: Prices) -> Iterator[str]:
    capacity = entry.capacity
    if prices.slot(capacity) is None:
        yield f"the On-Demand price in {prices.region} is unknown for {', '.join(capacity.types)}"
    for pool, share in pools(capacity, zones, prices):
        if pool in prices.spot and share >= 1:
            yield f"{pool} saves nothing: the Spot price is {share:.2f} of the On-Demand price"
    if isinstance(entry, Training):
        yield "assumed to run all month; it costs less if it finishes or has a deadline or budget"
        if entry.capacity_block is not None:
            yield "its Capacity Block is paid in advance and not included in the cost"
    elif entry.scaling is not None:
        low, high = entry.scaling.min, capacity.max_target
        yield f"assumed target {capacity.target}; scaling changes it between {low} and {high}"
    if capacity.fallback.reservation is not None:
        yield "its reservation is paid in any case and not subtracted"
    if not capacity.is_managed:
        yield "a fleet of type request is not replenished, but forecast as if it were"
    if is_on_kubernetes(entry):
        yield from _kubernetes_notes(entry)


def _kubernetes_notes(entry: Service | Training) -> Iterator[str]:
    if entry.capacity.spot_percentage:
        yield f"nodes are forecast with policy {KARPENTER_POLICY}, the closest to Karpenter's behavior"
    if isinstance(entry, Training):
        if entry.capacity.spot_percentage and entry.capacity.fallback.enabled:
            yield "on an On-Demand node it stays there until it finishes, which costs more than forecast"
        if entry.nodes > 1:
            yield f"its {entry.nodes} nodes wait for each other; lost minutes count the missing node only"


def entries(settings: Settings) -> tuple[Service | Training, ...]:
    """Return the groups of a forecast; dataset preparation runs an hour or two and is not included.

    On Kubernetes a group is the nodes of an entry, with its types and its number.
    """
    on_instances, on_kubernetes = settings.on_instances, settings.on_kubernetes
    return (
        *on_instances.services,
        *on_instances.jobs,
        *on_kubernetes.services,
        *(_with_all_nodes(job) for job in on_kubernetes.jobs),
    )


def _with_all_nodes(job: Training) -> Training:
    capacity = job.capacity.model_copy(update={"target": job.capacity.target * job.nodes})
    return job.model_copy(update={"capacity": capacity})
