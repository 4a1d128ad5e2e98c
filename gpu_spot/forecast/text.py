"""A forecast as Markdown and JSON."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from gpu_spot.forecast.groups import GroupForecast
from gpu_spot.forecast.ranges import Range
from gpu_spot.forecast.stack import StackForecast
from gpu_spot.preflight.prices import REGION
from gpu_spot.text import percent
from infra.catalogue import price_tables

_RUNS_ON: Final = {"instances": "instances", "kubernetes": "Kubernetes"}
_COLUMNS: Final = (
    *("slots", "$ per month", "range", "On-Demand only"),
    *("available %", "minutes per day with none ready", "interruptions per day", "lost slot-minutes per day"),
)

RECORDED_RANGE: Final = "A range contains four weeks in five."
MODELLED_RANGE: Final = "A range should contain four weeks in five of a market that was never seen."


@dataclass(frozen=True, slots=True)
class Basis:
    """The sources of a forecast: the market, what its range means, Spot prices, On-Demand prices with dates.

    ``scores`` are EC2's Spot placement scores by group, if requested. ``range`` says what a range
    contains; ``oldest`` is the date of the oldest price.
    """

    market: str
    range: str
    spot: str
    on_demand: str
    scores: Mapping[str, int] = field(default_factory=dict)
    oldest: str = ""

    def __str__(self) -> str:
        """Return the sources in one line."""
        scored = ", ".join(f"{name} {score}" for name, score in self.scores.items())
        score_text = f" Current Spot placement scores, 1 to 10: {scored}." if scored else ""
        return (
            f"Market: {self.market}. {self.range} Spot: {self.spot}. On-Demand: {self.on_demand}.{score_text}"
        )


def to_json(base: StackForecast | None, head: StackForecast, basis: Basis) -> dict[str, Any]:
    """Return both versions and their difference.

    Money is US dollars per month, availability a share of the time.
    """
    document: dict[str, Any] = {"basis": asdict(basis), "head": _stack_json(head)}
    if base is not None:
        document |= {"base": _stack_json(base), "difference": difference(base, head)}
    return document


def difference(base: StackForecast, head: StackForecast) -> dict[str, Any]:
    """Return the differences of the middle values; availability is that of the worst group."""
    worst = [stack.worst.availability.middle if stack.worst else None for stack in (base, head)]
    return {
        "month": head.month.middle - base.month.middle,
        "availability": None if None in worst else worst[1] - worst[0],  # type: ignore[operator]
        "interruptions": _sum(head, "interruptions") - _sum(base, "interruptions"),
        "lost_minutes": _sum(head, "lost_minutes") - _sum(base, "lost_minutes"),
    }


def _sum(stack: StackForecast, field: str) -> float:
    return float(sum(getattr(group, field).middle for group in stack.groups))


def _stack_json(stack: StackForecast) -> dict[str, Any]:
    lines = [
        {
            "what": line.item,
            "count": line.count,
            "each": line.unit_price,
            "region": line.region,
            "date": line.date,
        }
        for line in stack.lines
    ]
    return {
        "month": asdict(stack.month),
        "at_most_an_hour": asdict(stack.ceiling),
        "standing": stack.fixed_costs,
        "groups": [_group_json(group) for group in stack.groups],
        "lines": lines,
        "not_priced": list(stack.not_priced),
        "not_counted": list(stack.not_counted),
    }


def _group_json(group: GroupForecast) -> dict[str, Any]:
    return {"remarks" if key == "notes" else key: value for key, value in asdict(group).items()}


def markdown(base: StackForecast | None, head: StackForecast, basis: Basis) -> str:
    """Return a table of groups with changes, the other lines, and the sources."""
    return "\n".join(_lines(base, head, basis)) + "\n"


def _lines(base: StackForecast | None, head: StackForecast, basis: Basis) -> Iterator[str]:
    month = head.month
    change = f", {head.ceiling}"
    if base is not None:
        change = f", {_more(month.middle - base.month.middle)} a month{change}"
        if base.ceiling != head.ceiling:
            change += f", before {base.ceiling}"
    if base is not None and base.not_priced != head.not_priced:
        change += f" (before: without {', '.join(base.not_priced) or 'nothing'})"
    total = f"**{_dollars(month.middle)} a month** ({_dollars(month.low)} to {_dollars(month.high)}){change}"
    dates = [basis.oldest, *(line.date for line in head.lines if line.unit_price is not None)]
    if oldest := min(filter(None, dates), default=""):
        total += f"; oldest price: {oldest}"
    yield f"{total}, **without {', '.join(head.not_priced)}: not priced**" if head.not_priced else total
    yield ""
    yield f"| group | {' | '.join(_COLUMNS)} |"
    yield f"|---|{'---:|' * len(_COLUMNS)}"
    before = {group.name: group for group in base.groups} if base is not None else {}
    for group in head.groups:
        yield _row(group, before.pop(group.name, None), base is not None)
    for removed in before.values():
        cost = "not priced" if removed.cost is None else _more(-removed.cost.middle - removed.volumes)
        yield f"| ~~{removed.name}~~ | removed | {cost} | | | | | | |"
    fixed = _dollars(head.fixed_costs)
    if any(line.unit_price is None for line in head.lines):
        fixed += ", parts not priced"
    if base is not None and abs(head.fixed_costs - base.fixed_costs) >= 0.005:
        fixed += f" ({_more(head.fixed_costs - base.fixed_costs)})"
    yield f"| *other* | | {fixed} | | | | | | |"
    notes = [f"{group.name}: {note}" for group in head.groups for note in group.notes]
    other_lines = ", ".join(_other_lines(base, head))
    if other_lines or notes or head.not_counted:
        yield ""
        if other_lines:
            yield f"- other: {other_lines}"
        yield from (f"- {note}" for note in notes)
        yield from _price_regions(head)
        yield from (f"- not counted: {entry}" for entry in head.not_counted)
    yield ""
    yield f"{basis} A month is 730 hours of the forecast week."


def _price_regions(stack: StackForecast) -> Iterator[str]:
    """Yield the items that have prices of another region."""
    in_tables, in_module = stack.prices_of_another_region
    if in_tables:
        yield f"- at prices of {REGION}, until {price_tables.UPDATE_COMMAND}: {', '.join(in_tables)}"
    if in_module:
        yield f"- at prices of {REGION}: {', '.join(in_module)}"


def _other_lines(base: StackForecast | None, head: StackForecast) -> Iterator[str]:
    """Yield the other lines of the bill with their changes: not priced, then by cost down to one cent."""
    yield from (
        f"{line.item} ({line.count:,.0f}): not priced" for line in head.lines if line.unit_price is None
    )
    now = {line.item: (line.count, line.cost) for line in head.lines}
    before = {} if base is None else {line.item: line.cost for line in base.lines}
    names = sorted({*now, *before}, key=lambda item: (-now.get(item, (0, 0.0))[1], item))
    for item in names:
        count, amount = now.get(item, (0, 0.0))
        change = 0.0 if base is None else amount - before.get(item, 0.0)
        change_text = f", {_more(change)}" if abs(change) >= 0.005 else ""
        if amount >= 0.005 or change_text:
            yield f"{_dollars(amount)} {item} ({count:,.0f}{change_text})"


def _group_label(group: GroupForecast, before: GroupForecast | None) -> str:
    """Return a group's name, and where it runs if that is Kubernetes or has changed."""
    if before is not None and before.runs_on != group.runs_on:
        return f"{group.name} ({_RUNS_ON[group.runs_on]}, was {_RUNS_ON[before.runs_on]})"
    return f"{group.name} ({_RUNS_ON[group.runs_on]})" if group.runs_on == "kubernetes" else group.name


def _row(group: GroupForecast, before: GroupForecast | None, compared: bool) -> str:
    cost = _dollars(group.volumes + (group.cost.middle if group.cost else 0.0))
    if group.cost is None:
        cost = f"not priced; volumes and addresses {cost}"
    if compared and group.cost is not None:
        if before is None:
            cost += " (new)"
        elif before.cost is not None:
            change = group.cost.middle + group.volumes - before.cost.middle - before.volumes
            cost += f" ({_more(change)})" if abs(change) >= 0.005 else ""
    available = percent(group.availability.middle, 2)
    if (ends := (group.availability.low, group.availability.high)) != (1.0, 1.0):
        available += f" ({percent(ends[0], 2)} to {percent(ends[1], 2)})"
    if before is not None and abs(group.availability.middle - before.availability.middle) >= 0.00005:
        available += f" (was {percent(before.availability.middle, 2)})"
    alone = "not priced" if group.on_demand is None else _dollars(group.on_demand)
    slots = str(group.slots)
    if before is not None and before.slots != group.slots:
        slots += f" (was {before.slots})"
    return (
        f"| {_group_label(group, before)} | {slots} | {cost} | {_ends(group)} | {alone} | "
        f"{available.replace('%', '')} | {_rough(group.none_ready)} | "
        f"{_spread(group.interruptions)} | {_spread(group.lost_minutes)} |"
    )


def _spread(of: Range) -> str:
    return f"{_rough(of.middle)} ({_rough(of.low)} to {_rough(of.high)})" if of.high else "0"


def _rough(value: float) -> str:
    """Return a number with two digits that count."""
    digits = 1 - math.floor(math.log10(value)) if value >= 0.005 else 0
    return f"{round(value, digits):,.{max(0, min(digits, 2))}f}"


def _ends(group: GroupForecast) -> str:
    """Return the bounds of a group's cost with its volumes, as they are in the total."""
    if group.cost is None:
        return ""
    return f"{_dollars(group.cost.low + group.volumes)} to {_dollars(group.cost.high + group.volumes)}"


def _dollars(amount: float) -> str:
    return f"${amount:,.0f}" if abs(amount) >= 100 else f"${amount:,.2f}"


def _more(amount: float) -> str:
    return f"{'−' if amount < 0 else '+'}{_dollars(abs(amount))}"
