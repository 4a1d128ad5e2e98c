"""The page of a played HTTP service: latency and errors over time, with every interruption."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any, Final

from rehearsal.http.load_client import Record
from rehearsal.http.play import HttpOutcome, Interruption

_WIDTH: Final = 960
_HEIGHT: Final = 220
_NEAR_SECONDS: Final = 2.0
"""Time after a host's end in which a failure is one of that end."""
_STYLE: Final = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:62rem;margin:2rem auto;padding:0 1rem;color:#222}"
    "svg{width:100%;height:auto;background:#fafafa}text{font-size:12px;fill:#555}"
    "table{border-collapse:collapse}td,th{padding:.2rem 1rem .2rem 0;text-align:left}"
)


def quantile(values: Iterable[float], share: float) -> float:
    """Return a quantile of values; 0 of none."""
    ordered = sorted(values)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)] if ordered else 0.0


def is_by_death(record: Record, interruptions: Sequence[Interruption]) -> bool:
    """Return whether a host that had no notice ended during a request, or just before its end."""
    ended = record.at + record.last
    return any(
        not interruption.has_notice and record.at - _NEAR_SECONDS <= interruption.ends <= ended
        for interruption in interruptions
    )


def summarise(outcome: HttpOutcome) -> dict[str, Any]:
    """Return the counts: failures without a death near are those with notice."""
    failures = outcome.failed()
    by_death = [record for record in failures if is_by_death(record, outcome.interruptions)]
    served = [record.last for record in outcome.records if not record.error]
    noticed = sum(interruption.has_notice for interruption in outcome.interruptions)
    return {
        "requests": len(outcome.records),
        "streamed": sum(record.kind == "stream" for record in outcome.records),
        "interruptions": len(outcome.interruptions),
        "with_notice": noticed,
        "without_notice": len(outcome.interruptions) - noticed,
        "overdue": outcome.overdue,
        "failed_with_notice": len(failures) - len(by_death),
        "failed_repeatable": sum(record.is_repeatable for record in by_death),
        "failed_other": sum(not record.is_repeatable for record in by_death),
        "repeated": sum(state.repeated for state in outcome.states),
        "p50_ms": round(1000 * quantile(served, 0.5), 1),
        "p99_ms": round(1000 * quantile(served, 0.99), 1),
    }


def headline(summary: dict[str, Any]) -> str:
    """Return the summary in a line."""
    return (
        f"{summary['requests']:,} requests, {summary['interruptions']} interruptions "
        f"({summary['without_notice']} without notice): {summary['failed_with_notice']} failed by a notice, "
        f"{summary['failed_repeatable']} that may be repeated, {summary['failed_other']} others; "
        f"{summary['repeated']} were sent to another worker"
    )


def render(outcome: HttpOutcome) -> str:
    """Return the page, one HTML file."""
    summary = summarise(outcome)
    rows = "".join(
        f"<tr><th>{escape(name.replace('_', ' '))}</th><td>{value}</td></tr>"
        for name, value in summary.items()
    )
    title = escape(headline(summary))
    return (
        f"<!doctype html><meta charset=utf-8><title>{title}</title><style>{_STYLE}</style>"
        f"<h1>An HTTP service in a market</h1><p>{title}.</p>"
        "<h2>Seconds to the last byte</h2><p>Median (blue) and 99th percentile (orange) of each second; "
        "lines are interruptions: dashed with a notice, red without; dots are failed requests.</p>"
        f"{_latency(outcome)}<h2>Workers that take requests</h2>{_ready(outcome)}<table>{rows}</table>"
    )


def _latency(outcome: HttpOutcome) -> str:
    by_second: dict[int, list[float]] = defaultdict(list)
    for record in outcome.records:
        if not record.error:
            by_second[int(record.at - outcome.began)].append(record.last)
    top = max((quantile(values, 0.99) for values in by_second.values()), default=0.0) or 1.0
    end = _end(outcome)

    def line(share: float, color: str) -> str:
        points = [(second, quantile(by_second[second], share)) for second in sorted(by_second)]
        return _line(points, end, top, color)

    failures = "".join(
        f'<circle cx="{_x(record.at + record.last - outcome.began, end):.1f}" cy="8" r="3" fill="#c00">'
        f"<title>{escape(f'{record.kind}: {record.error}')}</title></circle>"
        for record in outcome.failed()
    )
    drawn = [_marks(outcome, end), line(0.99, "#e07000"), line(0.5, "#0060c0"), failures]
    return _svg("".join(drawn), f"{1000 * top:.0f} ms", f"{end:.0f} s")


def _ready(outcome: HttpOutcome) -> str:
    end = _end(outcome)
    top = max((count for _, count in outcome.ready), default=1) + 1
    points = [(at - outcome.began, float(count)) for at, count in outcome.ready]
    return _svg(_marks(outcome, end) + _line(points, end, top, "#080"), f"{top}", f"{end:.0f} s")


def _end(outcome: HttpOutcome) -> float:
    last = max((record.at + record.last for record in outcome.records), default=outcome.began)
    return max(last - outcome.began, 1.0)


def _x(seconds: float, end: float) -> float:
    return _WIDTH * seconds / end


def _line(points: Iterable[tuple[float, float]], end: float, top: float, color: str) -> str:
    text = " ".join(f"{_x(at, end):.1f},{_HEIGHT * (1 - value / top):.1f}" for at, value in points)
    return f'<polyline points="{text}" fill="none" stroke="{color}" stroke-width="1.5"/>'


def _marks(outcome: HttpOutcome, end: float) -> str:
    marks = []
    for interruption in outcome.interruptions:
        x = _x(interruption.at - outcome.began, end)
        style = 'stroke="#999" stroke-dasharray="3"' if interruption.has_notice else 'stroke="#c00"'
        marks.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="{_HEIGHT}" {style}/>')
    return "".join(marks)


def _svg(body: str, top: str, right: str) -> str:
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT + 18}" role="img">{body}<text x="4" y="14">{top}</text>'
        f'<text x="{_WIDTH - 4}" y="{_HEIGHT + 14}" text-anchor="end">{right}</text></svg>'
    )
