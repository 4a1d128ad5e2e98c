"""A forecast as people and programs read it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from gpu_spot.forecast.groups import GroupForecast
from gpu_spot.forecast.ranges import Likely
from gpu_spot.forecast.stack import StackForecast

_HALVES: Final = {"instances": "instances", "kubernetes": "Kubernetes"}
_COLUMNS: Final = (
    *("slots", "$ a month", "range", "on-demand alone"),
    *("available %", "interruptions a day", "lost minutes a day"),
)


@dataclass(frozen=True, slots=True)
class Basis:
    """What a forecast rests on: where the market is from, spot's prices, and how old on-demand's are.

    ``scores`` are EC2's spot placement scores by group, where somebody asked.
    """

    market: str
    spot: str
    on_demand: str
    scores: Mapping[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        """Return it in a line."""
        scored = ", ".join(f"{name} {score}" for name, score in self.scores.items())
        told = f" Spot placement scores now, 1 to 10: {scored}." if scored else ""
        return f"Market: {self.market}. Spot: {self.spot}. On-demand: {self.on_demand}.{told}"


def to_json(base: StackForecast | None, head: StackForecast, basis: Basis) -> dict[str, Any]:
    """Return both versions and their difference; money in US dollars a month, availability as shares."""
    told: dict[str, Any] = {"basis": asdict(basis), "head": _stack(head)}
    if base is not None:
        told |= {"base": _stack(base), "difference": difference(base, head)}
    return told


def difference(base: StackForecast, head: StackForecast) -> dict[str, Any]:
    """Return by how much the head's middle differs: dollars a month, availability of the worst group."""
    worst = [one.worst.availability.middle if one.worst else None for one in (base, head)]
    return {
        "month": head.month.middle - base.month.middle,
        "availability": None if None in worst else worst[1] - worst[0],  # type: ignore[operator]
        "interruptions": _sum(head, "interruptions") - _sum(base, "interruptions"),
        "lost_minutes": _sum(head, "lost_minutes") - _sum(base, "lost_minutes"),
    }


def _sum(stack: StackForecast, what: str) -> float:
    return float(sum(getattr(group, what) for group in stack.groups))


def _stack(stack: StackForecast) -> dict[str, Any]:
    lines = [{"what": what, "count": count, "each": price} for what, count, price in stack.lines]
    return {
        "month": asdict(stack.month),
        "standing": stack.standing,
        "groups": [asdict(group) for group in stack.groups],
        "lines": lines,
        "not_counted": list(stack.not_counted),
    }


def markdown(base: StackForecast | None, head: StackForecast, basis: Basis) -> str:
    """Return a table of groups with what changes, the other lines, and what all of it rests on."""
    return "\n".join(_lines(base, head, basis)) + "\n"


def _lines(base: StackForecast | None, head: StackForecast, basis: Basis) -> Iterator[str]:
    month = head.month
    change = "" if base is None else f", {_more(month.middle - base.month.middle)} a month"
    yield f"**{_dollars(month.middle)} a month** ({_dollars(month.low)} to {_dollars(month.high)}){change}"
    yield ""
    yield f"| group | {' | '.join(_COLUMNS)} |"
    yield f"|---|{'---:|' * len(_COLUMNS)}"
    before = {group.name: group for group in base.groups} if base is not None else {}
    for group in head.groups:
        yield _row(group, before.pop(group.name, None), base is not None)
    for gone in before.values():
        cost = "" if gone.cost is None else _more(-gone.cost.middle - gone.volumes)
        yield f"| ~~{gone.name}~~ | gone | {cost} | | | | | |"
    other = _dollars(head.standing)
    if base is not None and abs(head.standing - base.standing) >= 0.005:
        other += f" ({_more(head.standing - base.standing)})"
    yield f"| *all else* | | {other} | | | | | |"
    remarks = [f"{group.name}: {remark}" for group in head.groups for remark in group.remarks]
    others = ", ".join(_others(base, head))
    if others or remarks or head.not_counted:
        yield ""
        if others:
            yield f"- all else: {others}"
        yield from (f"- {remark}" for remark in remarks)
        yield from (f"- not counted: {one}" for one in head.not_counted)
    yield ""
    yield (
        f"{basis} A range is where four weeks in five shall be; a month is 730 hours of the week that is "
        "forecast."
    )


def _others(base: StackForecast | None, head: StackForecast) -> Iterator[str]:
    """Yield the bill's other lines, the dearest first, with what changes of each; none below a cent."""
    now = {what: (count, count * price) for what, count, price in head.lines}
    before = {} if base is None else {what: count * price for what, count, price in base.lines}
    names = sorted({*now, *before}, key=lambda what: (-now.get(what, (0, 0.0))[1], what))
    for what in names:
        count, amount = now.get(what, (0, 0.0))
        change = 0.0 if base is None else amount - before.get(what, 0.0)
        told = f", {_more(change)}" if abs(change) >= 0.005 else ""
        if amount >= 0.005 or told:
            yield f"{_dollars(amount)} {what} ({count:,.0f}{told})"


def _called(group: GroupForecast, before: GroupForecast | None) -> str:
    """Return a group's name, and its half where that is Kubernetes or another than before."""
    if before is not None and before.runs_on != group.runs_on:
        return f"{group.name} ({_HALVES[group.runs_on]}, was {_HALVES[before.runs_on]})"
    return f"{group.name} ({_HALVES[group.runs_on]})" if group.runs_on == "kubernetes" else group.name


def _row(group: GroupForecast, before: GroupForecast | None, compared: bool) -> str:
    cost = "not known" if group.cost is None else _dollars(group.cost.middle + group.volumes)
    if compared and group.cost is not None:
        if before is None:
            cost += " (new)"
        elif before.cost is not None:
            change = group.cost.middle + group.volumes - before.cost.middle - before.volumes
            cost += f" ({_more(change)})" if abs(change) >= 0.005 else ""
    available = f"{100 * group.availability.middle:.2f}"
    if before is not None and abs(group.availability.middle - before.availability.middle) >= 0.00005:
        available += f" (was {100 * before.availability.middle:.2f})"
    alone = "not known" if group.on_demand is None else _dollars(group.on_demand)
    slots = str(group.slots)
    if before is not None and before.slots != group.slots:
        slots += f" (was {before.slots})"
    return (
        f"| {_called(group, before)} | {slots} | {cost} | {_ends(group.cost)} | {alone} | {available} | "
        f"{group.interruptions:.1f} | {group.lost_minutes:.0f} |"
    )


def _ends(cost: Likely | None) -> str:
    return "" if cost is None else f"{_dollars(cost.low)} to {_dollars(cost.high)}"


def _dollars(amount: float) -> str:
    return f"${amount:,.0f}" if abs(amount) >= 100 else f"${amount:,.2f}"


def _more(amount: float) -> str:
    return f"{'−' if amount < 0 else '+'}{_dollars(abs(amount))}"
