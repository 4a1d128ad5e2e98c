"""The picture of what tenants used: a lane for each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from gpu_spot.text import counted
from rehearsal.report.plotting import WIDE_LEFT, Data, Figure, time_layout
from rehearsal.results.run import Run
from rehearsal.results.tenancy import PlayedTenant, TenancyAccount, Use

_LANE: Final = 96
_GAP: Final = 0.12
"""Of a lane's height, above it."""


def use(run: Run, tenancy: TenancyAccount) -> Figure:
    """Draw the CPUs that each tenant kept busy, what of them was others', and the times without a host."""
    count = len(tenancy.tenants)
    layout = time_layout(run, 92 + _LANE * count, "", left=WIDE_LEFT)
    lane = layout.pop("yaxis")
    data: list[Data] = []
    for row, tenant in enumerate(tenancy.tenants):
        axis = f"y{row + 1}" if row else "y"
        key = f"yaxis{row + 1}" if row else "yaxis"
        top = 1 - row / count
        layout[key] = lane | {
            "title": {"text": tenant.name, "standoff": 8},
            "domain": [top - (1 - _GAP) / count, top],
            "anchor": "x",
            "nticks": 4,
        }
        mine = [one for one in tenancy.uses if one.tenant == tenant.name]
        data += _lane(mine, tenant, axis, is_first=row == 0)
    layout["xaxis"] |= {"anchor": f"y{count}" if count > 1 else "y"}
    layout["shapes"] += [
        {
            "type": "rect",
            "xref": "x",
            "yref": "paper",
            "x0": round(1000 * begin),
            "x1": round(1000 * end),
            "y0": 0,
            "y1": 1,
            "fillcolor": "var(--lost)",
            "line": {"width": 1, "color": "var(--lost)"},
            "opacity": 0.5,
        }
        for begin, end in _without(tenancy)
    ]
    told = (
        f"{counted(count, 'tenant')}; {counted(len(_without(tenancy)), 'time')} without a host, marked "
        "across all lanes."
    )
    return Figure(
        "tenants-use",
        "Who used what",
        "CPUs that each tenant kept busy, in the mean from report to report of its host: its own, and those "
        f"of others that were idle. The dashed line is what it has by the list. {told}",
        f"A lane for each tenant with the CPUs that it used over time: {told}",
        data,
        layout,
        timeline=True,
    )


def _lane(uses: Sequence[Use], tenant: PlayedTenant, axis: str, *, is_first: bool) -> Iterable[Data]:
    own, borrowed, times = [], [], []
    last: float | None = None
    for one in uses:
        seconds = max(one.end - one.begin, 1.0)
        if last is not None and one.begin - last > 1.0:
            times.append(round(1000 * last))
            own.append(0.0)
            borrowed.append(0.0)
        times.append(round(1000 * one.begin))
        own.append((one.used - one.borrowed) / seconds)
        borrowed.append(one.borrowed / seconds)
        last = one.end
    if last is not None:
        times.append(round(1000 * last))
        own.append(0.0)
        borrowed.append(0.0)
    for name, values, colour in (("Its own", own, "--ready"), ("Borrowed", borrowed, "--on-demand")):
        yield {
            "type": "scatter",
            "mode": "lines",
            "name": name,
            "legendgroup": name,
            "showlegend": is_first,
            "x": times,
            "y": values,
            "yaxis": axis,
            "stackgroup": axis,
            "line": {"shape": "hv", "width": 1, "color": f"var({colour})"},
            "fillcolor": f"var({colour})",
            "hovertemplate": f"%{{y:.1f}} CPUs of {tenant.name}: {name.lower()}<extra></extra>",
        }
    if times:
        yield {
            "type": "scatter",
            "mode": "lines",
            "name": "Declared",
            "legendgroup": "Declared",
            "showlegend": is_first,
            "x": [times[0], times[-1]],
            "y": [tenant.cpus] * 2,
            "yaxis": axis,
            "line": {"width": 1.5, "dash": "dash", "color": "var(--ink)"},
            "hoverinfo": "skip",
        }


def _without(tenancy: TenancyAccount) -> list[tuple[float, float]]:
    """Return the times at which somebody had no host, joined where they overlap."""
    spans = [(one.ended, one.served) for one in tenancy.returns]
    spans += [(one.ended, one.until) for one in tenancy.away]
    found: list[tuple[float, float]] = []
    for begin, end in sorted(spans):
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((begin, end))
    return found
