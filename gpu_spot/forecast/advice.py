"""Which types, zones, ``shortageCost`` and warm pool keep a budget or an availability at the least cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final

from gpu_spot.forecast.groups import forecast, is_pods, pools, question
from gpu_spot.forecast.prices import Prices
from gpu_spot.forecast.ranges import Outlook
from gpu_spot.forecast.replayed import Question
from infra.schema import Service, Training
from lambdas.core.capacity import policies

SHORTAGE_COSTS: Final = (2.0, 30.0, 100.0, 300.0)


@dataclass(frozen=True, slots=True)
class Option:
    """What could stand in the stack file. ``warm`` is ``fallback.warmInstances``.

    ``shortage_cost`` is None on Kubernetes, where nobody reckons with it.
    """

    types: tuple[str, ...]
    zones: tuple[str, ...]
    shortage_cost: float | None
    warm: int


@dataclass(frozen=True, slots=True)
class Trial:
    """What an option is expected to come to: a cost in any one unit, and a share of the time."""

    option: Option
    cost: float
    availability: float


def options(
    entry: Service | Training, zones: Sequence[str], prices: Prices
) -> Iterator[tuple[Option, Service | Training]]:
    """Yield what is tried, and the entry as it would be: types and zones of the stack file, fewer of them.

    Fewer types are those of which spot is cheapest. A policy other than the default is left as it is, and so
    is a warm pool that the group cannot have.
    """
    capacity = entry.capacity
    ranked = list(dict.fromkeys(pool.instance_type for pool, _ in pools(capacity, zones, prices)))
    if capacity.instance_types is None:
        ranked, sizes = list(capacity.types), [len(capacity.types)]
    else:
        sizes = sorted({1, 2, len(ranked)} & set(range(1, len(ranked) + 1)))
    fallback = capacity.fallback
    by_cost = fallback.enabled and fallback.policy == policies.DEFAULT and not is_pods(entry)
    costs = SHORTAGE_COSTS if by_cost else (None,)
    warms = {0, capacity.target} if _can_warm(entry) else {0 if is_pods(entry) else capacity.warm_instances}
    for size, many, cost, warm in product(sizes, {min(2, len(zones)), len(zones)}, costs, sorted(warms)):
        kinds = tuple(kind for kind in capacity.types if kind in ranked[:size])
        knobs = {"shortageCost": cost} if cost is not None else fallback.knobs
        changed = fallback.model_copy(update={"knobs": knobs, "warm_instances": warm})
        types = {} if capacity.instance_types is None else {"instance_types": kinds}
        other = capacity.model_copy(update={"fallback": changed, **types})
        shortage = cost if cost is not None else policies.shortage_cost(policies.build(fallback.policy))
        told = None if is_pods(entry) else shortage
        option = Option(kinds, tuple(zones[:many]), told, warm)
        yield option, entry.model_copy(update={"capacity": other})


def _can_warm(entry: Service | Training) -> bool:
    capacity = entry.capacity
    has_fallback = capacity.fallback.enabled and capacity.unit == "instances"
    return isinstance(entry, Service) and has_fallback and not is_pods(entry)


def asked(tried: Sequence[tuple[Option, Service | Training]], prices: Prices) -> list[Question | None]:
    """Return what is asked of the market for each option."""
    return [question(entry, option.zones, prices, None) for option, entry in tried]


def trials(
    tried: Sequence[tuple[Option, Service | Training]],
    prices: Prices,
    outlooks: Mapping[Question, Outlook],
    disk: float,
) -> list[Trial]:
    """Return what each option comes to, in US dollars a month with the warm pool's disks at ``disk`` a GiB.

    Raises ``ValueError`` where the price of a type is not known.
    """
    found = []
    for (option, entry), question_ in zip(tried, asked(tried, prices), strict=True):
        outlook = None if question_ is None else outlooks[question_]
        group = forecast(entry, option.zones, prices, outlook)
        if group.cost is None:
            raise ValueError(f"{'; '.join(group.remarks)}: nothing can be advised without")
        stopped = option.warm * entry.capacity.root_volume_gib * disk
        found.append(Trial(option, group.cost.middle + group.volumes + stopped, group.availability.middle))
    return found


def choose(
    found: Sequence[Trial], *, budget: float | None = None, availability: float | None = None
) -> Trial | None:
    """Return the cheapest that is so available, the most available within the budget, None where none is.

    With both, the cheapest that keeps both.
    """
    fits = [
        one
        for one in found
        if (budget is None or one.cost <= budget)
        and (availability is None or one.availability >= availability)
    ]
    if availability is None:
        return max(fits, key=lambda one: (one.availability, -one.cost), default=None)
    return min(fits, key=lambda one: (one.cost, -one.availability), default=None)


def efficient(trials: Sequence[Trial]) -> list[Trial]:
    """Return those than which nothing is both cheaper and more available, the cheapest first."""
    found: list[Trial] = []
    for one in sorted(trials, key=lambda one: (one.cost, -one.availability)):
        if not found or one.availability > found[-1].availability:
            found.append(one)
    return found


def reason(budget: float | None, availability: float | None, trials: Sequence[Trial], best: Trial) -> str:
    """Return why one was chosen: what it was chosen by, and what the next best on either side comes to."""
    rule = (
        f"the most available of {len(trials)} within ${budget:,.2f}"
        if availability is None
        else f"the cheapest of {len(trials)} that is available {100 * availability:g} %"
        + (f" within ${budget:,.2f}" if budget is not None else "")
    )
    ranked = efficient(trials)
    more = next((one for one in ranked if one.availability > best.availability), None)
    less = next((one for one in reversed(ranked) if one.cost < best.cost), None)
    said = [rule]
    if more is not None:
        said.append(f"{100 * more.availability:.3f} % would cost ${more.cost - best.cost:,.2f} more")
    if less is not None:
        said.append(f"${best.cost - less.cost:,.2f} less gives {100 * less.availability:.3f} %")
    return "; ".join(said) + "."
