"""Jobs in the terminal: a table of all, and the timeline of one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from gpu_spot.jobs.account import JobAccount
from gpu_spot.jobs.status import Phase
from gpu_spot.jobs.timeline import Chapter, Ending, Story
from gpu_spot.text import CAUSES, clock, counted, span

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
    "goes on": "goes on",
    "notice": CAUSES["notice"],
    "hand-over": CAUSES["hand-over"],
    "loss": CAUSES["loss"],
    "host fault": "the host was to blame",
    "stopped": "stopped",
    "done": "done",
    "failed": "failed",
}
"""How a chapter ended, in words."""


def jobs_table(jobs: Sequence[JobAccount], stack: str) -> RenderableType:
    """Return all jobs of a stack, a line each."""
    if not jobs:
        return Text(f"stack {stack} has no job")
    table = Table(box=box.SIMPLE_HEAD, title=f"jobs of {stack}", title_justify="left")
    for column in ("job", "state", "host", "steps", "why"):
        table.add_column(column, overflow="fold")
    for job in jobs:
        table.add_row(job.seen.name, _phase(job), _where(job), _progress(job), Text(job.standing.why))
    return table


def job_card(job: JobAccount) -> RenderableType:
    """Return one job with its timeline."""
    story = job.story
    head = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    head.add_column(style="dim")
    head.add_column(overflow="fold")
    head.add_row("job", Text(job.seen.name, style="bold"))
    head.add_row("state", Text.assemble(_phase(job), f"  {job.standing.why}".rstrip()))
    head.add_row("host", _where(job))
    head.add_row("revision", job.seen.run)
    if job.progress:
        head.add_row("steps", _progress(job))
    if job.seen.budget:
        head.add_row("budget", f"${job.seen.spent:,.2f} of ${job.seen.budget:,.2f} spent on instances")
    if story is None or not story.chapters:
        return head
    for name, told in totals(story):
        head.add_row(name, told)
    return Group(head, Text(), _timeline(story))


def totals(story: Story) -> list[tuple[str, str]]:
    """Return what a story comes to: names and words."""
    unknown = f", and {span(story.unpriced_seconds)} without a known price" if story.unpriced_seconds else ""
    return [
        ("worked", f"{span(story.worked_seconds)} in {counted(len(story.chapters), 'stay')}"),
        ("interruptions", f"{story.interruptions}, {counted(story.moves, 'move')} to another zone"),
        ("redone", f"{span(story.lost_seconds)} of it"),
        ("away", f"{span(story.away_seconds)} between hosts"),
        ("cost", f"about ${story.cost:,.2f} for instances, by public prices{unknown}"),
        *([("earlier", "not kept: the last hundred stays are")] if story.is_cut else []),
    ]


def row_of(one: Chapter) -> tuple[str, ...]:
    """Return a chapter in words: when, where, how long, how it ended, lost, away, cost."""
    stint = one.stint
    return (
        clock(one.began if one.started is None else one.started),
        f"{stint.zone} {stint.instance_type} {stint.market}".rstrip(),
        "never started" if one.started is None else span(one.worked_seconds),
        ENDINGS[one.ending],
        span(one.lost_seconds) if one.lost_seconds >= 0.5 else "–",
        "–" if one.away_seconds is None else span(one.away_seconds),
        "–" if one.cost is None else f"${one.cost:,.2f}",
    )


COLUMNS: Final = ("from (UTC)", "where", "worked", "ended", "redone", "away", "about")
"""Of a timeline, as ``row_of`` fills them."""


def _timeline(story: Story) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for number, column in enumerate(COLUMNS):
        right = number in (2, 4, 5, 6)
        table.add_column(column, justify="right" if right else "left", no_wrap=number == 0 or right)
    for one in story.chapters:
        when, *cells = row_of(one)
        table.add_row(when.partition("-")[2], *cells)  # without the year
    return table


def _phase(job: JobAccount) -> Text:
    return Text(job.standing.phase, style=_STYLES[job.standing.phase])


def _where(job: JobAccount) -> Text:
    host = job.standing.host
    return Text("–" if host is None else f"{host.instance}  {host.instance_type}  {host.zone}  {host.market}")


def _progress(job: JobAccount) -> str:
    if job.progress is None:
        return "–"
    step, steps = job.progress
    return f"{step:,}" if steps is None else f"{step:,} of {steps:,}"
