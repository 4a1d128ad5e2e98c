"""The forecast of a whole stack, and how two versions of one differ."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from gpu_spot.forecast import fixed_costs as standing
from gpu_spot.forecast import groups
from gpu_spot.forecast.groups import GroupForecast
from gpu_spot.forecast.prices import Prices
from gpu_spot.forecast.ranges import NOTHING, Likely, Outlook
from gpu_spot.forecast.replayed import Question, Traces
from gpu_spot.preflight.stack import Stack
from infra.schema import Settings

Answers = Callable[[Sequence[Question]], Iterable[Outlook]]
"""Answers questions, in their order."""


@dataclass(frozen=True, slots=True)
class StackForecast:
    """A stack's groups, the other lines of its bill, what is in none of them, and the month in US dollars."""

    groups: tuple[GroupForecast, ...]
    lines: tuple[standing.Line, ...]
    not_counted: tuple[str, ...]

    @property
    def standing(self) -> float:
        """What is paid beside instances and their volumes."""
        return sum(count * price for _, count, price in self.lines)

    @property
    def month(self) -> Likely:
        """The whole bill; groups without a price are not in it."""
        total = Likely(self.standing, self.standing, self.standing)
        for group in self.groups:
            total = total.plus(Likely(group.volumes, group.volumes, group.volumes))
            total = total.plus(group.cost or NOTHING)
        return total

    @property
    def worst(self) -> GroupForecast | None:
        """The group that is expected to be least available."""
        wanted = [group for group in self.groups if group.slots]
        return min(wanted, key=lambda group: group.availability.middle, default=None)


def questions(settings: Settings, prices: Prices, recorded: Traces | None) -> dict[str, Question | None]:
    """Return what is asked for each group; the pools of a recorded market stand for its own."""
    zones = settings.network.zones
    return {entry.name: groups.question(entry, zones, prices, recorded) for entry in groups.entries(settings)}


def answered(asked: Iterable[Question | None], answers: Answers) -> dict[Question, Outlook]:
    """Ask each question once."""
    once = list(dict.fromkeys(one for one in asked if one is not None))
    return dict(zip(once, answers(once), strict=True))


def forecast(
    settings: Settings,
    prices: Prices,
    asked: dict[str, Question | None],
    outlooks: dict[Question, Outlook],
    declared: Stack,
    file_system_gib: float = 0.0,
) -> StackForecast:
    """Put the forecast of a stack together. ``declared`` is what the program declares for ``settings``."""
    found = tuple(
        groups.forecast(
            entry,
            settings.network.zones,
            prices,
            None if (one := asked[entry.name]) is None else outlooks[one],
        )
        for entry in groups.entries(settings)
    )
    listed = prices.on_demand
    lines = tuple(line for line in standing.lines(declared, file_system_gib, listed) if line[1])
    return StackForecast(found, lines, tuple(standing.not_counted(declared, listed)))
