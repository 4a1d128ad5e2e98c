"""The choice among options with expected cost and availability."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Option:
    """Possible settings of a group. ``warm`` is ``fallback.warmInstances``.

    ``shortage_cost`` is None on Kubernetes, where it has no effect. ``interruptions`` is the highest range of
    the Spot Instance Advisor among the types, "" if unknown, and ``rank`` its position, -1 if unknown.
    """

    types: tuple[str, ...]
    zones: tuple[str, ...]
    shortage_cost: float | None
    warm: int
    on_demand_base: int = 0
    spot_percentage: int = 100
    region: str = ""
    interruptions: str = ""
    rank: int = -1

    @property
    def settings(self) -> tuple[object, ...]:
        """Everything except the pools."""
        return self.region, self.shortage_cost, self.warm, self.on_demand_base, self.spot_percentage

    def extends(self, alternative: Option) -> bool:
        """Return whether this option has the settings and pools of ``alternative``, and more pools."""
        types, zones = set(self.types), set(self.zones)
        has_all = types >= set(alternative.types) and zones >= set(alternative.zones)
        has_more = types > set(alternative.types) or zones > set(alternative.zones)
        return self.settings == alternative.settings and has_all and has_more


@dataclass(frozen=True, slots=True)
class MarketOutcome:
    """Cost, in any one unit, and availability as a share of the time."""

    cost: float
    availability: float


@dataclass(frozen=True, slots=True)
class Trial:
    """The expected cost of an option and its availability.

    ``outcomes`` are those in a good, an expected and a bad market, the same markets for all trials.
    """

    option: Option
    cost: float
    availability: float
    outcomes: tuple[MarketOutcome, ...] = field(default=())

    @property
    def in_markets(self) -> tuple[MarketOutcome, ...]:
        """The outcomes, or the expected one in their place."""
        return self.outcomes or (MarketOutcome(self.cost, self.availability),)


def sound(trials: Sequence[Trial]) -> list[Trial]:
    """Return the trials without those that leave out pools and are not expected to be cheaper for it.

    More pools rarely cost more, so an advantage in availability alone is a chance of the forecast
    (docs/adr/0058).
    """
    return [
        trial
        for trial in trials
        if not any(
            alternative.cost <= trial.cost and alternative.option.extends(trial.option)
            for alternative in trials
        )
    ]


def regret(trial: Trial, trials: Sequence[Trial], availability: float) -> float:
    """Return the maximum over the markets of cost ÷ the cheapest cost - 1.

    The cheapest is among the trials that in this market have the required availability, or at least that of
    ``trial`` if it has less.
    """
    regrets = []
    for index, outcome in enumerate(trial.in_markets):
        enough = min(availability, outcome.availability)
        alternatives = [
            alternative.in_markets[min(index, len(alternative.in_markets) - 1)] for alternative in trials
        ]
        cheapest = min(alternative.cost for alternative in alternatives if alternative.availability >= enough)
        regrets.append(outcome.cost / cheapest - 1 if cheapest else 0.0)
    return max(regrets)


def choose(
    trials: Sequence[Trial], *, budget: float | None = None, availability: float | None = None
) -> Trial | None:
    """Return the best trial with the availability, or the most available within the budget.

    The best has the least regret over the markets, and is the cheapest if there is one market only. With both
    constraints, the best that meets both. Equal trials are ordered by interruptions. None if no trial fits.
    """
    fits = [
        trial
        for trial in trials
        if (budget is None or trial.cost <= budget)
        and (availability is None or trial.availability >= availability)
    ]
    if availability is None:
        return max(
            fits,
            key=lambda trial: (trial.availability, -trial.cost, -trial.option.rank),
            default=None,
        )
    return min(
        fits,
        key=lambda trial: (
            round(regret(trial, trials, availability), 6),
            trial.cost,
            -trial.availability,
            trial.option.rank,
        ),
        default=None,
    )


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
        else _rule(availability, trials, best) + (f" within ${budget:,.2f}" if budget is not None else "")
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


def _rule(availability: float, trials: Sequence[Trial], best: Trial) -> str:
    required = f"of {len(trials)} that is available {100 * availability:g} %"
    cheapest = min(trial.cost for trial in trials if trial.availability >= availability)
    if best.cost <= cheapest + 0.005:
        return f"the cheapest {required}"
    above = 100 * regret(best, trials, availability)
    return (
        f"the safest {required}: at most {above:.0f} % above the best in a good, the expected and a bad "
        f"market; the cheapest costs ${best.cost - cheapest:,.2f} less"
    )
