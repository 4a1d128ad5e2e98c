"""The forecast of a stack, and the difference between two versions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from gpu_spot.forecast import fixed_costs, groups
from gpu_spot.forecast.groups import GroupForecast
from gpu_spot.forecast.prices import Prices
from gpu_spot.forecast.ranges import NOTHING, Range, SlotForecast
from gpu_spot.forecast.replayed import Question, Traces
from gpu_spot.preflight.stack import Stack
from infra.schema import Settings

ForecastSlots = Callable[[Sequence[Question]], Iterable[SlotForecast]]
"""Answers questions in their order."""


@dataclass(frozen=True, slots=True)
class StackForecast:
    """A stack's groups, other lines of its bill, excluded costs, and the monthly total in US dollars."""

    groups: tuple[GroupForecast, ...]
    lines: tuple[fixed_costs.Line, ...]
    not_counted: tuple[str, ...]

    @property
    def fixed_costs(self) -> float:
        """Cost of everything except instances and their volumes."""
        return sum(count * price for _, count, price in self.lines)

    @property
    def month(self) -> Range:
        """The total cost; groups without a price are excluded."""
        total = Range(self.fixed_costs, self.fixed_costs, self.fixed_costs)
        for group in self.groups:
            total = total.plus(Range(group.volumes, group.volumes, group.volumes))
            total = total.plus(group.cost or NOTHING)
        return total

    @property
    def worst(self) -> GroupForecast | None:
        """The group with the lowest expected availability."""
        groups = [group for group in self.groups if group.slots]
        return min(groups, key=lambda group: group.availability.middle, default=None)


def questions(settings: Settings, prices: Prices, recorded: Traces | None) -> dict[str, Question | None]:
    """Return the market question of each group; the pools of a recorded market replace its own."""
    zones = settings.network.zones
    return {entry.name: groups.question(entry, zones, prices, recorded) for entry in groups.entries(settings)}


def forecast_questions(
    questions: Iterable[Question | None], forecast_slots: ForecastSlots
) -> dict[Question, SlotForecast]:
    """Answer each distinct question once."""
    unique = list(dict.fromkeys(question for question in questions if question is not None))
    return dict(zip(unique, forecast_slots(unique), strict=True))


def forecast(
    settings: Settings,
    prices: Prices,
    questions_by_group: dict[str, Question | None],
    slot_forecasts: dict[Question, SlotForecast],
    declared: Stack,
    file_system_gib: float = 0.0,
) -> StackForecast:
    """Return the forecast of a stack. ``declared`` are the resources of ``settings``."""
    group_forecasts = tuple(
        groups.forecast(
            entry,
            settings.network.zones,
            prices,
            None if (question := questions_by_group[entry.name]) is None else slot_forecasts[question],
        )
        for entry in groups.entries(settings)
    )
    listed = prices.on_demand
    lines = tuple(line for line in fixed_costs.lines(declared, file_system_gib, listed) if line[1])
    return StackForecast(group_forecasts, lines, tuple(fixed_costs.not_counted(declared, listed)))
