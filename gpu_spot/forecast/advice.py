"""Recommends types, zones, ``shortageCost`` and warm pool for a budget or an availability."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final

from gpu_spot.forecast.groups import forecast, is_on_kubernetes, pools, question
from gpu_spot.forecast.prices import Prices
from gpu_spot.forecast.ranges import SlotForecast
from gpu_spot.forecast.replayed import Question
from infra.schema import Service, Training
from lambdas.core.capacity import policies

SHORTAGE_COSTS: Final = (2.0, 30.0, 100.0, 300.0)


@dataclass(frozen=True, slots=True)
class Option:
    """Possible settings of a group. ``warm`` is ``fallback.warmInstances``.

    ``shortage_cost`` is None on Kubernetes, where it has no effect.
    """

    types: tuple[str, ...]
    zones: tuple[str, ...]
    shortage_cost: float | None
    warm: int


@dataclass(frozen=True, slots=True)
class Trial:
    """The expected cost of an option, in any one unit, and its availability as a share of the time."""

    option: Option
    cost: float
    availability: float


def options(
    entry: Service | Training, zones: Sequence[str], prices: Prices
) -> Iterator[tuple[Option, Service | Training]]:
    """Yield the options and the changed entries: subsets of the stack file's types and zones.

    Subsets of types are those with the lowest Spot prices. A policy other than the default is not changed,
    nor is a warm pool that the group cannot have.
    """
    capacity = entry.capacity
    ranked = list(dict.fromkeys(pool.instance_type for pool, _ in pools(capacity, zones, prices)))
    if capacity.instance_types is None:
        ranked, sizes = list(capacity.types), [len(capacity.types)]
    else:
        sizes = sorted({1, 2, len(ranked)} & set(range(1, len(ranked) + 1)))
    fallback = capacity.fallback
    by_cost = fallback.enabled and fallback.policy == policies.DEFAULT and not is_on_kubernetes(entry)
    costs = SHORTAGE_COSTS if by_cost else (None,)
    warms = (
        {0, capacity.target}
        if _can_warm(entry)
        else {0 if is_on_kubernetes(entry) else capacity.warm_instances}
    )
    for size, zone_count, cost, warm in product(
        sizes, {min(2, len(zones)), len(zones)}, costs, sorted(warms)
    ):
        kinds = tuple(kind for kind in capacity.types if kind in ranked[:size])
        parameters = {"shortageCost": cost} if cost is not None else fallback.policy_parameters
        changed = fallback.model_copy(update={"policy_parameters": parameters, "warm_instances": warm})
        types = {} if capacity.instance_types is None else {"instance_types": kinds}
        changed_capacity = capacity.model_copy(update={"fallback": changed, **types})
        shortage = cost if cost is not None else policies.shortage_cost(policies.build(fallback.policy))
        shown_shortage_cost = None if is_on_kubernetes(entry) else shortage
        option = Option(kinds, tuple(zones[:zone_count]), shown_shortage_cost, warm)
        yield option, entry.model_copy(update={"capacity": changed_capacity})


def _can_warm(entry: Service | Training) -> bool:
    capacity = entry.capacity
    has_fallback = capacity.fallback.enabled and capacity.unit == "instances"
    return isinstance(entry, Service) and has_fallback and not is_on_kubernetes(entry)


def slot_questions(
    tried: Sequence[tuple[Option, Service | Training]], prices: Prices
) -> list[Question | None]:
    """Return the market question of each option."""
    return [question(entry, option.zones, prices, None) for option, entry in tried]


def trials(
    tried: Sequence[tuple[Option, Service | Training]],
    prices: Prices,
    slot_forecasts: Mapping[Question, SlotForecast],
    disk: float,
) -> list[Trial]:
    """Return the expected result of each option, in US dollars per month.

    The disks of the warm pool are included at ``disk`` per GiB. Raises ``ValueError`` if the price of a type
    is unknown.
    """
    results = []
    for (option, entry), question_ in zip(tried, slot_questions(tried, prices), strict=True):
        slot_forecast = None if question_ is None else slot_forecasts[question_]
        group = forecast(entry, option.zones, prices, slot_forecast)
        if group.cost is None:
            raise ValueError(f"{'; '.join(group.notes)}: no recommendation is possible")
        stopped = option.warm * entry.capacity.root_volume_gib * disk
        results.append(Trial(option, group.cost.middle + group.volumes + stopped, group.availability.middle))
    return results


def choose(
    trials: Sequence[Trial], *, budget: float | None = None, availability: float | None = None
) -> Trial | None:
    """Return the cheapest trial with the availability, or the most available within the budget.

    With both constraints, the cheapest that meets both. None if no trial fits.
    """
    fits = [
        trial
        for trial in trials
        if (budget is None or trial.cost <= budget)
        and (availability is None or trial.availability >= availability)
    ]
    if availability is None:
        return max(fits, key=lambda trial: (trial.availability, -trial.cost), default=None)
    return min(fits, key=lambda trial: (trial.cost, -trial.availability), default=None)


def efficient(trials: Sequence[Trial]) -> list[Trial]:
    """Return the trials on the frontier of cost and availability, the cheapest first."""
    frontier: list[Trial] = []
    for trial in sorted(trials, key=lambda trial: (trial.cost, -trial.availability)):
        if not frontier or trial.availability > frontier[-1].availability:
            frontier.append(trial)
    return frontier


def reason(budget: float | None, availability: float | None, trials: Sequence[Trial], best: Trial) -> str:
    """Return why a trial was chosen, with the neighbors on the frontier."""
    rule = (
        f"the most available of {len(trials)} within ${budget:,.2f}"
        if availability is None
        else f"the cheapest of {len(trials)} that is available {100 * availability:g} %"
        + (f" within ${budget:,.2f}" if budget is not None else "")
    )
    ranked = efficient(trials)
    more = next((trial for trial in ranked if trial.availability > best.availability), None)
    less = next((trial for trial in reversed(ranked) if trial.cost < best.cost), None)
    parts = [rule]
    if more is not None:
        parts.append(f"{100 * more.availability:.3f} % would cost ${more.cost - best.cost:,.2f} more")
    if less is not None:
        parts.append(f"${best.cost - less.cost:,.2f} less gives {100 * less.availability:.3f} %")
    return "; ".join(parts) + "."
