"""Jobs on the terminal: a table of all jobs, and the timeline of one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from gpu_spot.jobs.report import JobReport
from gpu_spot.jobs.status import Phase
from gpu_spot.text import CAUSES, clock, counted, span
from userdata.agent.cost import page
from userdata.agent.cost.account import RunAccount
from userdata.agent.cost.timeline import AttemptSummary, Ending, JobTimeline

_STYLES: Final[Mapping[Phase, str]] = {
    "pending": "dim",
    "preparing": "cyan",
    "running": "green",
    "interrupted": "bold yellow",
    "moving": "cyan",
    "waiting for a host": "yellow",
    "stopped": "dim",
    "done": "bold green",
    "failed": "bold red",
}
ENDINGS: Final[Mapping[Ending, str]] = {
    "goes on": "running",
    "notice": CAUSES["notice"],
    "hand-over": CAUSES["hand-over"],
    "loss": CAUSES["loss"],
    "host fault": "host fault",
    "stopped": "stopped",
    "done": "done",
    "failed": "failed",
}
"""How an attempt ended, as displayed."""


def jobs_table(jobs: Sequence[JobReport], stack: str) -> RenderableType:
    """Return a table of all jobs of a stack."""
    if not jobs:
        return Text(f"stack {stack} has no jobs")
    table = Table(box=box.SIMPLE_HEAD, title=f"jobs of {stack}", title_justify="left")
    for column in ("job", "state", "host", "steps", "reason"):
        table.add_column(column, overflow="fold")
    for job in jobs:
        table.add_row(job.snapshot.name, _phase(job), _where(job), _progress(job), Text(job.status.reason))
    return table


def job_card(job: JobReport) -> RenderableType:
    """Return one job with its timeline."""
    timeline = job.timeline
    head = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    head.add_column(style="dim")
    head.add_column(overflow="fold")
    head.add_row("job", Text(job.snapshot.name, style="bold"))
    head.add_row("state", Text.assemble(_phase(job), f"  {job.status.reason}".rstrip()))
    head.add_row("host", _where(job))
    head.add_row("revision", job.snapshot.run)
    if job.progress:
        head.add_row("steps", _progress(job))
    if job.snapshot.budget:
        head.add_row("budget", f"${job.snapshot.spent:,.2f} of ${job.snapshot.budget:,.2f} spent")
    if timeline is None or not timeline.attempts:
        return head
    for name, value in totals(timeline):
        head.add_row(name, value)
    return Group(head, Text(), _timeline(timeline), *([] if job.account is None else _account(job.account)))


def totals(timeline: JobTimeline) -> list[tuple[str, str]]:
    """Return the totals of a timeline as names and texts."""
    unknown = (
        f", without {span(timeline.unpriced_seconds)} of unknown price" if timeline.unpriced_seconds else ""
    )
    charge = timeline.charge
    estimate = f"{'up to' if charge.assumed_seconds else 'about'} ${charge.dollars:,.2f}"
    return [
        ("worked", f"{span(timeline.worked_seconds)} in {counted(len(timeline.attempts), 'attempt')}"),
        ("interruptions", f"{timeline.interruptions}, {counted(timeline.moves, 'move')} to another zone"),
        ("lost work", span(timeline.lost_seconds)),
        ("downtime", f"{span(timeline.away_seconds)} between hosts"),
        ("cost", f"{estimate} for instances at public prices{unknown}"),
        *([("earlier", "not available: only the last 100 attempts are stored")] if timeline.is_cut else []),
    ]


def timeline_row(attempt: AttemptSummary) -> tuple[str, ...]:
    """Return the cells of an attempt, in the order of ``COLUMNS``."""
    record = attempt.attempt
    return (
        clock(attempt.began if attempt.started is None else attempt.started),
        f"{record.zone} {record.instance_type} {record.purchase_option}".rstrip(),
        "never started" if attempt.started is None else span(attempt.worked_seconds),
        ENDINGS[attempt.ending],
        span(attempt.lost_seconds) if attempt.lost_seconds >= 0.5 else "–",
        "–" if attempt.away_seconds is None else span(attempt.away_seconds),
        "–" if attempt.cost is None else page.dollars(attempt.charge),
    )


COLUMNS: Final = ("start (UTC)", "instance", "worked", "end", "lost work", "downtime", "cost")
"""Column titles of a timeline."""


def _timeline(timeline: JobTimeline) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for number, column in enumerate(COLUMNS):
        right = number in (2, 4, 5, 6)
        table.add_column(column, justify="right" if right else "left", no_wrap=number == 0 or right)
    for attempt in timeline.attempts:
        when, *cells = timeline_row(attempt)
        table.add_row(when.partition("-")[2], *cells)  # without the year
    return table


def _account(account: RunAccount) -> list[RenderableType]:
    """Return the tables and notes of an account."""
    parts: list[RenderableType] = []
    for content in page.tables(account):
        table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
        for number, column in enumerate(content.columns):
            table.add_column(column, justify="left" if number < content.texts else "right")
        for row in content.rows:
            table.add_row(*row, style="bold" if row[0] == "total" else None)
        parts.append(table)
    return [*parts, *map(Text, page.notes(account))]


def _phase(job: JobReport) -> Text:
    return Text(job.status.phase, style=_STYLES[job.status.phase])


def _where(job: JobReport) -> Text:
    host = job.status.host
    return Text("–" if host is None else f"{host.instance}  {host.instance_type}  {host.zone}  {host.market}")


def _progress(job: JobReport) -> str:
    if job.progress is None:
        return "–"
    step, steps = job.progress
    return f"{step:,}" if steps is None else f"{step:,} of {steps:,}"
