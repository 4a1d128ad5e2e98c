"""Recommends region, types, zones, Spot share, ``shortageCost`` and warm pool of a group."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Final

from contracts.group.on_demand_share import on_demand_share
from gpu_spot.forecast.advisor import Rate, worst
from gpu_spot.forecast.choice import MarketOutcome, Option, Trial
from gpu_spot.forecast.groups import forecast, is_on_kubernetes, pools, question, recorded_question
from gpu_spot.forecast.prices import Prices
from gpu_spot.forecast.ranges import SlotForecast
from gpu_spot.forecast.replayed import Question, Traces
from infra.schema import Capacity, Service, Training
from lambdas.core.capacity import policies

SHORTAGE_COSTS: Final = (2.0, 100.0, 300.0, 500.0, 1000.0)
SPOT_PERCENTAGES: Final = (100, 75, 50, 25, 0)


@dataclass(frozen=True, slots=True)
class RegionMarket:
    """A region in which a group may run: its prices and zones.

    ``rates`` are interruption rates of the Spot Instance Advisor by type, and ``recorded`` the traces of a
    recorded market, if any.
    """

    prices: Prices
    zones: tuple[str, ...]
    rates: Mapping[str, Rate] = field(default_factory=dict)
    recorded: Traces | None = None


Tried = tuple[Option, Service | Training]
"""An option, and the entry of the stack file that it changes."""


def options(entry: Service | Training, region: RegionMarket) -> Iterator[Tried]:
    """Yield the options and the changed entries: subsets of the stack file's types and the region's zones.

    Subsets of types are those with the lowest Spot prices, and with rates those with the fewest
    interruptions. A policy other than the default is not changed, nor is a warm pool that the group cannot
    have. A mix without Spot is tried once, because the other settings do not matter to it.
    """
    zones, prices = region.zones, region.prices
    subsets = list(_type_subsets(entry, region))
    counts = sorted({min(2, len(zones)), len(zones)})
    costs, warms, mixes = _shortage_costs(entry), _warm_sizes(entry), list(_mixes(entry))
    with_spot = [mix for mix in mixes if _spot_slots(entry.capacity, mix)]
    for kinds, count, cost, warm, mix in product(subsets, counts, costs, warms, with_spot):
        yield _changed(entry, prices, kinds, zones[:count], cost, warm, mix)
    for mix in mixes:
        if mix not in with_spot:
            yield _changed(entry, prices, subsets[-1], zones, costs[0], warms[0], mix)


def _changed(
    entry: Service | Training,
    prices: Prices,
    kinds: tuple[str, ...],
    zones: tuple[str, ...],
    cost: float | None,
    warm: int,
    mix: tuple[int, int],
) -> Tried:
    capacity = entry.capacity
    fallback = capacity.fallback
    parameters = {"shortageCost": cost} if cost is not None else fallback.policy_parameters
    changed = fallback.model_copy(update={"policy_parameters": parameters, "warm_instances": warm})
    types = {} if capacity.instance_types is None else {"instance_types": kinds}
    base, percentage = mix
    changed_capacity = capacity.model_copy(
        update={"fallback": changed, "on_demand_base": base, "spot_percentage": percentage, **types}
    )
    shortage = cost if cost is not None else policies.shortage_cost(policies.build(fallback.policy))
    option = Option(
        kinds,
        zones,
        None if is_on_kubernetes(entry) else shortage,
        warm,
        on_demand_base=base,
        spot_percentage=percentage,
        region=prices.region,
    )
    return option, entry.model_copy(update={"capacity": changed_capacity})


def _type_subsets(entry: Service | Training, region: RegionMarket) -> Iterator[tuple[str, ...]]:
    """Yield subsets of the types, the smallest first and all of them last."""
    capacity, rates = entry.capacity, region.rates
    if capacity.instance_types is None:
        yield capacity.types
        return
    cheapest = list(
        dict.fromkeys(pool.instance_type for pool, _ in pools(capacity, region.zones, region.prices))
    )
    unknown = max((rate.rank for rate in rates.values()), default=0) + 1
    calmest = sorted(cheapest, key=lambda kind: rates[kind].rank if kind in rates else unknown)
    yielded = []
    for size in sorted({1, min(2, len(cheapest)), len(cheapest)}):
        for ranked in (cheapest, calmest):
            kinds = tuple(kind for kind in capacity.types if kind in ranked[:size])
            if kinds not in yielded:
                yielded.append(kinds)
                yield kinds


def _shortage_costs(entry: Service | Training) -> tuple[float | None, ...]:
    fallback = entry.capacity.fallback
    by_cost = fallback.enabled and fallback.policy == policies.DEFAULT and not is_on_kubernetes(entry)
    return SHORTAGE_COSTS if by_cost else (None,)


def _warm_sizes(entry: Service | Training) -> list[int]:
    if _can_warm(entry):
        return sorted({0, entry.capacity.target})
    return [0 if is_on_kubernetes(entry) else entry.capacity.warm_instances]


def _can_warm(entry: Service | Training) -> bool:
    capacity = entry.capacity
    has_fallback = capacity.fallback.enabled and capacity.unit == "instances"
    return isinstance(entry, Service) and has_fallback and not is_on_kubernetes(entry)


def _mixes(entry: Service | Training) -> Iterator[tuple[int, int]]:
    """Yield the allowed values of ``onDemandBase`` and ``spotPercentage``, the entry's own first.

    Values that give the same number of On-Demand slots are yielded once. The schema allows no mix on
    Kubernetes, nor for a job with a deadline or a Capacity Block.
    """
    capacity = entry.capacity
    own_mix = _own_mix(capacity)
    yield own_mix
    is_fixed = is_on_kubernetes(entry) or (
        isinstance(entry, Training) and (entry.deadline is not None or entry.capacity_block is not None)
    )
    if is_fixed:
        return
    yielded = {_spot_slots(capacity, own_mix)}
    scaling = entry.scaling if isinstance(entry, Service) else None
    bases = [base for base in (0, 1) if scaling is None or base <= scaling.min]
    for base, percentage in product(bases, SPOT_PERCENTAGES):
        slots = _spot_slots(capacity, (base, percentage))
        if slots not in yielded and base <= capacity.target:
            yielded.add(slots)
            yield base, percentage


def _own_mix(capacity: Capacity) -> tuple[int, int]:
    return capacity.on_demand_base, capacity.spot_percentage


def _spot_slots(capacity: Capacity, mix: tuple[int, int]) -> int:
    return capacity.target - on_demand_share(capacity.target, *mix)


def slot_questions(tried: Sequence[Tried], region: RegionMarket) -> list[Question | None]:
    """Return the market question of each option; None if it uses no Spot.

    A slot of a group with an On-Demand share is forecast like one of the whole group on Spot: groups of 4 to
    50 slots cost the same per slot (docs/adr/0043).
    """
    return [_question(option, entry, region) for option, entry in tried]


def _question(option: Option, entry: Service | Training, region: RegionMarket) -> Question | None:
    if _spot_slots(entry.capacity, (option.on_demand_base, option.spot_percentage)) == 0:
        return None
    capacity = entry.capacity.model_copy(update={"on_demand_base": 0, "spot_percentage": 100})
    on_spot = entry.model_copy(update={"capacity": capacity})
    if region.recorded is not None:
        return recorded_question(on_spot, option.zones, region.prices, region.recorded)
    return question(on_spot, option.zones, region.prices, None)


def trials(
    tried: Sequence[Tried], region: RegionMarket, slot_forecasts: Mapping[Question, SlotForecast], disk: float
) -> list[Trial]:
    """Return the expected result of each option, in US dollars per month.

    The disks of the warm pool are included at ``disk`` per GiB. Raises ``ValueError`` if the price of a type
    is unknown.
    """
    results = []
    for (option, entry), question_ in zip(tried, slot_questions(tried, region), strict=True):
        slot_forecast = None if question_ is None else slot_forecasts[question_]
        group = forecast(entry, option.zones, region.prices, slot_forecast)
        if group.cost is None:
            raise ValueError(f"{'; '.join(group.notes)}: no recommendation is possible")
        disks = group.volumes + option.warm * entry.capacity.root_volume_gib * disk
        cost, ready = group.cost, group.availability
        outcomes = (
            MarketOutcome(cost.low + disks, ready.high),
            MarketOutcome(cost.middle + disks, ready.middle),
            MarketOutcome(cost.high + disks, ready.low),
        )
        rate = worst(region.rates, option.types)
        rated = option if rate is None else replace(option, interruptions=rate.label, rank=rate.rank)
        results.append(Trial(rated, cost.middle + disks, ready.middle, outcomes))
    return results
