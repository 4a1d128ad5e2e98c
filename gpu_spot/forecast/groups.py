"""The market question of a group in a stack file, and the group's forecast from the answer."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from contracts.group.warm_pool import on_demand_share
from gpu_spot.forecast.prices import Prices
from gpu_spot.forecast.ranges import NO_SPOT, WEEK, Range, SlotForecast
from gpu_spot.forecast.replayed import DRAWN_POOLS, MAX_POOLS, MAX_SLOTS, Question, Traces
from gpu_spot.preflight import prices as list_prices
from gpu_spot.preflight.prices import HOURS
from gpu_spot.preflight.stack import with_all_nodes
from infra.catalogue import price_tables
from infra.kubernetes import pods
from infra.schema import Capacity, Service, Settings, SharedHost, Training
from infra.schema.jobs.schedule import duration_seconds
from infra.schema.work import RunsOn
from lambdas.core.capacity.policies.ready_handover import ReadyHandover
from lambdas.core.model import Pool
from market.supply.trace import PoolTrace

_WEEK_MINUTES: Final = WEEK * 12 * 60
_DRAWN_ZONES: Final = 4
_MONTH_DAYS: Final = 30
_CHECKPOINT_MINUTES: Final = 10.0
"""Maximum interval of checkpoints of ``spot_training`` (see its ``interval.py``)."""
ForecastEntry: TypeAlias = Service | Training | SharedHost
"""An entry of the stack file that has a group."""
_FREE_THROUGHPUT_MIB: Final = 125
"""Throughput that the price of a gp3 volume includes ("Amazon EBS pricing")."""
KARPENTER_POLICY: Final = ReadyHandover.name
"""The policy closest to Karpenter: On-Demand for each slot that Spot cannot fill, and no other."""


@dataclass(frozen=True, slots=True)
class GroupForecast:
    """The forecast of a group: US dollars per month, shares of the time, and rates per day.

    ``on_demand`` is the cost of the same slots with On-Demand only; ``lost_minutes`` are the minutes of work
    of a slot per day that are missing or repeated, ``none_ready`` the minutes per day in which no slot is
    ready (for more than ``MAX_SLOTS`` slots an upper bound); ``volumes`` is the cost of its EBS volumes and
    public addresses, which have no Spot price. Costs of instances are None if a price is unknown. ``runs_on``
    says whether slots are instances of a group or nodes that Karpenter launches.
    """

    name: str
    slots: int
    cost: Range | None
    on_demand: float | None
    volumes: float
    availability: Range
    interruptions: Range
    lost_minutes: Range
    none_ready: float
    notes: tuple[str, ...] = ()
    runs_on: RunsOn = "instances"


def pools(capacity: Capacity, zones: Sequence[str], prices: Prices) -> list[tuple[Pool, Range]]:
    """Return the pools of a group with Spot price ÷ On-Demand price, in each zone the cheapest first."""
    priced = []
    for zone in zones:
        shares = [(prices.share(Pool(kind, zone), capacity), kind) for kind in capacity.types]
        ranked = enumerate(sorted(shares, key=lambda share_and_type: share_and_type[0].middle))
        priced += [(rank, share, Pool(kind, zone)) for rank, (share, kind) in ranked]
    return [
        (pool, share)
        for _, share, pool in sorted(priced, key=lambda entry: (entry[0], entry[1].middle, str(entry[2])))
    ]


def _price_range(shares: Sequence[Range]) -> Range:
    """Return the ends of the pools' prices ÷ the prices that the replay took."""
    middle = sum(share.middle for share in shares)
    low, high = sum(share.low for share in shares), sum(share.high for share in shares)
    return Range(low / middle, 1.0, high / middle)


def question(
    entry: ForecastEntry, zones: Sequence[str], prices: Prices, recorded: Traces | None
) -> Question | None:
    """Return the market question of a group; None if it uses no Spot."""
    capacity = entry.capacity
    owned = on_demand_share(capacity.target, capacity.on_demand_base, capacity.spot_percentage)
    if (spot := capacity.target - owned) == 0:
        return None
    all_pools = pools(capacity, zones, prices)
    replayed = all_pools[:MAX_POOLS] if recorded is None else _recorded_pools(all_pools, recorded)
    zone_names = list(dict.fromkeys(pool.zone for pool, _ in replayed))
    fallback = capacity.fallback
    return Question(
        slots=min(spot, MAX_SLOTS),
        shares=tuple(round(share.middle, 4) for _, share in replayed),
        zones=tuple(zone_names.index(pool.zone) for pool, _ in replayed),
        drawn=() if recorded is not None else _drawn_pools([pool for pool, _ in replayed], zones),
        policy=KARPENTER_POLICY if is_on_kubernetes(entry) else fallback.policy,
        policy_parameters=()
        if is_on_kubernetes(entry)
        else tuple(sorted(fallback.policy_parameters.items())),
        fallback=fallback.enabled,
        warm=capacity.warm_instances > 0 and not is_on_kubernetes(entry),
        job=not isinstance(entry, Service),
        drain_seconds=_drain_seconds(entry),
    )


def is_on_kubernetes(entry: ForecastEntry) -> bool:
    """Return whether an entry runs on Kubernetes, on nodes that Karpenter launches."""
    return _runs_on(entry) == "kubernetes"


def _runs_on(entry: ForecastEntry) -> RunsOn:
    return "instances" if isinstance(entry, SharedHost) else entry.runs_on


def _drain_seconds(entry: ForecastEntry) -> float:
    """Return how long before its end an instance stops work; a pod stops when its node gets the notice."""
    if not isinstance(entry, Service):
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


def traced_pool(trace: PoolTrace) -> Pool:
    """Return the pool of a trace that is named ``ZONE_TYPE`` or ``ZONE``."""
    zone, _, kind = trace.name.partition("_")
    return Pool(kind, zone)


def _recorded_pools(pools: Sequence[tuple[Pool, Range]], recorded: Traces) -> list[tuple[Pool, Range]]:
    """Return a pool for each trace with its price: else the cheapest of the group in its zone, or of all."""
    by_pool = dict(pools)
    priced = []
    for pool in map(traced_pool, recorded):
        cheapest = next((share for group_pool, share in pools if group_pool.zone == pool.zone), pools[0][1])
        priced.append((pool, by_pool.get(pool, cheapest)))
    return priced


def forecast(
    entry: ForecastEntry,
    zones: Sequence[str],
    prices: Prices,
    slot_forecast: SlotForecast | None,
    *,
    has_addresses: bool = False,
) -> GroupForecast:
    """Return the forecast of a group from that of a Spot slot; with a public address per instance or not."""
    capacity, target = entry.capacity, entry.capacity.target
    owned = on_demand_share(target, capacity.on_demand_base, capacity.spot_percentage)
    spot = target - owned
    week = slot_forecast or NO_SPOT
    missing = week.shortage
    priced = [share for _, share in pools(capacity, zones, prices)[:MAX_POOLS]]
    cost = week.cost_at(_price_range(priced)) if slot_forecast else week.cost
    slot = prices.slot(capacity)
    month = 0.0 if target == 0 else None if slot is None else slot * _hours(entry)
    bill = cost.times(spot).plus(Range(owned, owned, owned))
    part = spot / target / _WEEK_MINUTES if target else 0.0
    again = week.unannounced * _CHECKPOINT_MINUTES / 2 if isinstance(entry, Training) else 0.0
    delays = _restart_delays(week.losses.middle) if _is_delayed(entry) else []
    more = Range(*(again + sum(delays) / 60 / _MONTH_DAYS,) * 3)
    return GroupForecast(
        entry.name,
        target,
        None if month is None else bill.times(month),
        None if month is None else month * target,
        _volumes(entry, prices.region, has_addresses=has_addresses),
        Range(*(max(0.0, 1 - minutes * part) for minutes in (missing.high, missing.middle, missing.low))),
        week.losses.times(spot),
        missing.times(1 / 7).plus(more).times(spot),
        0.0 if owned else week.none_ready,
        (*_notes(entry, zones, prices), *([_delay_note(delays)] if delays else ())),
        _runs_on(entry),
    )


def _hours(entry: ForecastEntry) -> float:
    """Return the hours of a month in which an entry's instances run: those of a job's runs, or all."""
    hours = _run_hours(entry) if isinstance(entry, Training) else None
    return HOURS if hours is None else min(hours * _runs(entry), HOURS)


def _run_hours(job: Training) -> float | None:
    """Return the hours of a run of a job: ``expectedHours``, else its deadline; None if neither is set."""
    if job.expected_hours is None and job.deadline_after is not None:
        return duration_seconds(job.deadline_after) / 3600
    return job.expected_hours


def _runs(entry: ForecastEntry) -> float:
    """Return how often a job runs in a month: as its schedule says; once, if people start it."""
    schedule = entry.schedule if isinstance(entry, Training) else None
    return 1.0 if schedule is None else schedule.runs_a_month or 1.0


def _is_delayed(entry: ForecastEntry) -> bool:
    """Return whether the Job controller delays an entry's restarts (``pods.restart_delay_seconds``)."""
    return isinstance(entry, Training) and is_on_kubernetes(entry) and entry.matrix is not None


def _restart_delays(losses: float) -> list[int]:
    """Return the seconds before each restart of a run of a month with so many interruptions a day."""
    return [pods.restart_delay_seconds(number) for number in range(1, round(losses * _MONTH_DAYS) + 1)]


def _delay_note(delays: Sequence[int]) -> str:
    return (
        "Kubernetes delays each restart of an experiment, from 10 s to 10 minutes: "
        f"{sum(delays) / 3600:.1f} hours of one of a month, in the lost minutes"
    )


def _volumes(entry: ForecastEntry, region: str, *, has_addresses: bool) -> float:
    """Return the monthly cost of a group's EBS volumes and addresses, at list price whatever Spot costs.

    There is a root volume for each instance of the target, of the smallest type if sizes differ.
    """
    capacity = entry.capacity
    roots = math.ceil(capacity.target / min(capacity.weights.values()))
    roots_share = _hours(entry) / HOURS  # they end with their instances, other volumes stay
    gib = roots * roots_share * capacity.root_volume_gib
    usual = pods.ROOT_THROUGHPUT_MIB if is_on_kubernetes(entry) else _FREE_THROUGHPUT_MIB
    addresses = roots * roots_share * HOURS if has_addresses and not is_on_kubernetes(entry) else 0.0
    throughput = roots * roots_share * ((capacity.root_volume_throughput_mib or usual) - _FREE_THROUGHPUT_MIB)
    if isinstance(entry, Training) and entry.volume_gib:
        gib += entry.volume_gib
        throughput += max(0, entry.throughput_mib - _FREE_THROUGHPUT_MIB)
    elif isinstance(entry, SharedHost):
        gib += sum(tenant.data_gib for tenant in entry.tenants)
    return sum(
        count * price.usd
        for name, count in (
            (price_tables.EBS_GP3, gib),
            (price_tables.EBS_GP3_THROUGHPUT, throughput),
            (price_tables.PUBLIC_IPV4, addresses),
        )
        if (price := list_prices.of(name, region)) is not None
    )


def _notes(entry: ForecastEntry, zones: Sequence[str], prices: Prices) -> Iterator[str]:
    capacity = entry.capacity
    unpriced = ", ".join(prices.unpriced(capacity.types))
    if capacity.target and prices.slot(capacity) is None:
        yield f"not priced: {unpriced} in {prices.region}; {price_tables.UPDATE_COMMAND} reads AWS's prices"
    elif unpriced:
        yield f"{unpriced} in {prices.region}: not priced, forecast at the prices of the other types"
    useless = {
        str(pool) if pool in prices.spot else pool.instance_type: share.middle
        for pool, share in pools(capacity, zones, prices)
        if share.middle >= 1
    }
    for name, of_on_demand in useless.items():
        yield f"{name} saves nothing: the Spot price is {of_on_demand:.2f} of the On-Demand price"
    if isinstance(entry, Training):
        hours, count = _run_hours(entry), _runs(entry)
        if hours is None:
            yield "assumed to run all month; it costs less if it finishes (expectedHours) or has a budget"
        else:
            source = "deadlineAfter" if entry.expected_hours is None else "expectedHours"
            yield f"{'one run' if count == 1 else f'{count:.1f} runs a month'} of {hours:g} hours ({source})"
        if entry.capacity_block is not None:
            yield "its Capacity Block is paid in advance and not included in the cost"
    elif isinstance(entry, Service) and entry.scaling is not None:
        low, high = entry.scaling.min, capacity.max_target
        yield f"assumed target {capacity.target}; scaling changes it between {low} and {high}"
        if headroom := entry.scaling.headroom:
            yield _headroom_note(capacity.target, headroom, prices.slot(capacity))
    if capacity.fallback.reservation is not None:
        yield "its reservation is paid in any case and not subtracted"
    if not capacity.is_managed:
        yield "a fleet of type request is not replenished, but forecast as if it were"
    if not isinstance(entry, SharedHost) and is_on_kubernetes(entry):
        yield from _kubernetes_notes(entry)


def _headroom_note(target: int, headroom: float, slot_price: float | None) -> str:
    """Return what a service's headroom costs: the part of the target that it is."""
    slots = target * headroom / (1 + headroom)
    cost = "not priced" if slot_price is None else f"${slots * slot_price * HOURS:,.0f} a month On-Demand"
    return f"{slots:.1f} of the target are for headroom {headroom:g}: {cost}, less with Spot"


def _kubernetes_notes(entry: Service | Training) -> Iterator[str]:
    if entry.capacity.spot_percentage:
        yield f"nodes are forecast with policy {KARPENTER_POLICY}, the closest to Karpenter's behavior"
    if isinstance(entry, Training):
        if entry.capacity.spot_percentage and entry.capacity.fallback.enabled:
            yield "on an On-Demand node it stays there until it finishes, which costs more than forecast"
        if entry.nodes.max > 1:
            waits = "wait for each other" if entry.nodes.needs_all else f"wait below {entry.nodes.min}"
            yield f"its {entry.nodes} nodes {waits}; lost minutes count the missing node only"


def entries(settings: Settings) -> tuple[Service | Training, ...]:
    """Return the services and jobs.

    On Kubernetes a group is the nodes of an entry, with its types and its number. The preparation of a
    dataset, an hour or two, is not a group.
    """
    on_instances, on_kubernetes = settings.on_instances, settings.on_kubernetes
    return (
        *on_instances.services,
        *on_instances.jobs,
        *on_kubernetes.services,
        *map(with_all_nodes, on_kubernetes.jobs),
    )


def all_entries(settings: Settings) -> tuple[ForecastEntry, ...]:
    """Return the groups of a forecast: services, jobs and shared hosts."""
    return (*entries(settings), *settings.shared_hosts)
