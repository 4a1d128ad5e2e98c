"""The tables of services with real workers on the page: by origin of a reply, and by service."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from gpu_spot.text import number, percent
from rehearsal.report.serving import not_billed
from rehearsal.results.serving import ORIGINS, Served, ServedGroup


def tables(served: Served) -> str:
    """Return the sections of the page."""
    names = [group.name for group in served.groups]
    return _section(
        "answered-by",
        "Answered by",
        "Requests by the worker that replied to the client, and runs of each service by the machine of the "
        f"worker. Runs include repeats. Calls of the external API: {number(served.failed_calls)} failed and "
        f"{number(served.withheld_calls)} were withheld at the limit per hour; the queue answered these.",
        ["Answered by", "Requests", "of all", *(f"Runs of {name}" for name in names)],
        _origins(served),
    ) + _section(
        "services",
        "Services",
        "Interruptions and starts of instances, ends of workers, and cost as a share of the On-Demand price "
        f"of the target less the office's workers, all after the warm-up. {not_billed()}",
        [
            "Service",
            "Target",
            "Interruptions",
            "without notice",
            "Spot starts",
            "On-Demand starts",
            "Drained",
            "Overdue",
            "Killed",
            "Run again",
            "Cost",
        ],
        map(_service, served.groups),
    )


def _origins(served: Served) -> Iterable[list[str]]:
    for origin in ORIGINS:
        count = served.sources.get(origin, 0)
        runs = [number(group.runs.get(origin, 0)) for group in served.groups]
        yield [origin, number(count), percent(count / served.answered if served.answered else 0.0), *runs]


def _service(group: ServedGroup) -> list[str]:
    counts = (
        group.target,
        group.interruptions,
        group.unannounced,
        group.spot_starts,
        group.on_demand_starts,
        group.drained,
        group.overdue,
        group.killed,
        group.run_again,
    )
    cost = percent(group.paid / group.all_on_demand) if group.all_on_demand else "none"
    return [group.name, *map(number, counts), cost]


def _section(name: str, title: str, caption: str, heads: Sequence[str], rows: Iterable[list[str]]) -> str:
    first, *labels = heads
    head = f'<th scope="col">{escape(first)}</th>' + "".join(
        f'<th scope="col" class="n">{escape(text)}</th>' for text in labels
    )
    body = "\n".join(_row(row, labels) for row in rows)
    return f"""
  <section class="card" id="{name}">
    <h2>{escape(title)}</h2>
    <p class="caption">{escape(caption)}</p>
    <div class="scroll" tabindex="0" role="region" aria-label="{escape(title)}">
      <table class="moves">
        <thead><tr>{head}</tr></thead>
        <tbody>
{body}
        </tbody>
      </table>
    </div>
  </section>"""


def _row(cells: Sequence[str], heads: Sequence[str]) -> str:
    """Return a row; on a narrow screen each number has its head as a label."""
    first, *numbers = cells
    counts = "".join(
        f'<td class="n" data-label="{escape(head)}">{escape(cell)}</td>'
        for head, cell in zip(heads, numbers, strict=True)
    )
    return f"          <tr><td>{escape(first)}</td>{counts}</tr>"
