"""The forecast of a stack, and the difference between two versions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from gpu_spot.forecast import fixed_costs, groups
from gpu_spot.forecast.ceiling import Ceiling, ceiling
from gpu_spot.forecast.groups import GroupForecast
from gpu_spot.forecast.prices import Prices
from gpu_spot.forecast.ranges import NOTHING, Range, SlotForecast
from gpu_spot.forecast.replayed import Question, Traces
from gpu_spot.preflight import prices as list_prices
from gpu_spot.preflight.prices import Line
from gpu_spot.preflight.stack import Stack
from infra.catalogue import price_tables
from infra.schema import Settings

ForecastSlots = Callable[[Sequence[Question]], Iterable[SlotForecast]]
"""Answers questions in their order."""


@dataclass(frozen=True, slots=True)
class StackForecast:
    """A stack's groups, other lines of its bill, excluded costs, and the monthly total in US dollars.

    ``volumes_region`` is the region whose EBS prices are used. ``ceiling`` is the most that the instances may
    cost in an hour.
    """

    groups: tuple[GroupForecast, ...]
    lines: tuple[Line, ...]
    not_counted: tuple[str, ...]
    region: str
    volumes_region: str
    ceiling: Ceiling

    @property
    def fixed_costs(self) -> float:
        """Cost of everything except instances and their volumes."""
        return sum(line.cost for line in self.lines)

    @property
    def not_priced(self) -> tuple[str, ...]:
        """Groups and lines without a price, which the total does not contain."""
        return (
            *(f"the instances of {group.name}" for group in self.groups if group.cost is None),
            *(line.item for line in self.lines if line.unit_price is None),
        )

    def unknown_change(self, base: StackForecast) -> tuple[str, ...]:
        """Return what has no price and may change the cost: instances of groups, and lines that differ."""
        before = {line.item: line.count for line in base.lines}
        return (
            *(f"the instances of {group.name}" for group in self.groups if group.cost is None),
            *(
                line.item
                for line in self.lines
                if line.unit_price is None and before.get(line.item) != line.count
            ),
        )

    @property
    def prices_of_another_region(self) -> tuple[list[str], list[str]]:
        """Items with prices of another region: those that an update of the tables changes, and others."""
        lines = [line for line in self.lines if line.unit_price is not None and line.region != self.region]
        volumes = self.volumes_region != self.region and any(group.volumes for group in self.groups)
        in_tables = [*(["volumes"] if volumes else []), *(line.item for line in lines if line.is_in_tables)]
        return in_tables, [line.item for line in lines if not line.is_in_tables]

    @property
    def month(self) -> Range:
        """The total cost; ``not_priced`` is excluded."""
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
    return {
        entry.name: groups.question(entry, settings.zones_of(entry.name), prices, recorded)
        for entry in groups.all_entries(settings)
    }


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
            settings.zones_of(entry.name),
            prices,
            None if (question := questions_by_group[entry.name]) is None else slot_forecasts[question],
            has_addresses=settings.network.egress == "public",
        )
        for entry in groups.all_entries(settings)
    )
    lines = tuple(line for line in fixed_costs.lines(declared, file_system_gib) if line.count)
    gp3 = list_prices.of(price_tables.EBS_GP3, prices.region)
    return StackForecast(
        group_forecasts,
        lines,
        tuple(fixed_costs.not_counted(declared, file_system_gib)),
        prices.region,
        prices.region if gp3 is None else gp3.region,
        ceiling(settings),
    )
