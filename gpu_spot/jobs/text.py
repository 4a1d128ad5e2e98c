"""Jobs on the terminal: a table of all jobs, and the timeline of one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from gpu_spot.jobs.account import RunAccount
from gpu_spot.jobs.prices import Charge
from gpu_spot.jobs.report import JobReport
from gpu_spot.jobs.status import Phase
from gpu_spot.jobs.timeline import JobTimeline
from gpu_spot.text import CAUSES, clock, counted, span

_UNKNOWN: Final = "unknown"
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
_ENDINGS: Final[Mapping[str, str]] = {"goes on": "running", **dict(CAUSES.items())}


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
    for name, value in _totals(timeline):
        head.add_row(name, value)
    return Group(head, Text(), _timeline(timeline), *([] if job.account is None else _account(job.account)))


def _totals(timeline: JobTimeline) -> list[tuple[str, str]]:
    charge = timeline.charge
    unknown = f", without {span(charge.unpriced_seconds)} of unknown price" if charge.unpriced_seconds else ""
    estimate = f"{'up to' if charge.assumed_seconds else 'about'} ${charge.dollars:,.2f}"
    return [
        ("worked", f"{span(timeline.worked_seconds)} in {counted(len(timeline.attempts), 'attempt')}"),
        ("interruptions", f"{timeline.interruptions}, {counted(timeline.moves, 'move')} to another zone"),
        ("lost work", span(timeline.lost_seconds)),
        ("downtime", f"{span(timeline.away_seconds)} between hosts"),
        ("cost", f"{estimate} for instances at public prices{unknown}"),
        *([("earlier", "not available: only the last 100 attempts are stored")] if timeline.is_cut else []),
    ]


def _timeline(timeline: JobTimeline) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    columns = ("start (UTC)", "instance", "worked", "end", "lost work", "downtime", "cost")
    for number, column in enumerate(columns):
        right = number in (2, 4, 5, 6)
        table.add_column(column, justify="right" if right else "left", no_wrap=number == 0 or right)
    for attempt in timeline.attempts:
        record = attempt.attempt
        when = clock(record.began if attempt.started is None else attempt.started)
        table.add_row(
            when.partition("-")[2],  # without the year
            f"{record.zone} {record.instance_type} {record.purchase_option}".rstrip(),
            "never started" if attempt.started is None else span(attempt.worked_seconds),
            _ENDINGS.get(attempt.ending, attempt.ending),
            span(attempt.lost_seconds) if attempt.lost_seconds >= 0.5 else "–",
            "–" if attempt.away_seconds is None else span(attempt.away_seconds),
            "–" if attempt.cost is None else _dollars(attempt.charge),
        )
    return table


def _account(account: RunAccount) -> list[RenderableType]:
    """Return the tables and notes of an account."""
    parts: list[RenderableType] = []
    for content in tables(account):
        table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
        for number, column in enumerate(content.columns):
            table.add_column(column, justify="left" if number < content.texts else "right")
        for row in content.rows:
            table.add_row(*row, style="bold" if row[0] == "total" else None)
        parts.append(table)
    return [*parts, *map(Text, notes(account))]


@dataclass(frozen=True, slots=True)
class AccountTable:
    """A table of an account; of each row the first ``texts`` cells are texts, the others numbers."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    texts: int


def tables(account: RunAccount) -> tuple[AccountTable, ...]:
    """Return the instance hours with their cost, and the same hours by phase; the last row is the total."""
    pools = [(pool.market, pool.instance_type, pool.zone, *_cells(pool.charge)) for pool in account.pools]
    if len(account.markets) > 1:
        pools += [(market, "all", "", *_cells(charge)) for market, charge in account.markets.items()]
    total = account.total
    phases = [
        (phase, _hours(seconds), f"{100 * seconds / total.seconds:.1f}%")
        for phase, seconds in account.phases.items()
    ]
    return (
        AccountTable(
            ("market", "type", "zone", "hours", "cost", "On-Demand"),
            (*pools, ("total", "", "", *_cells(total))),
            texts=3,
        ),
        AccountTable(
            ("phase", "hours", "share"), (*phases, ("total", _hours(total.seconds), "100.0%")), texts=1
        ),
    )


def notes(account: RunAccount) -> Iterator[str]:
    """Yield one-line statements: losses, waiting time, prices, and what the totals are without."""
    ended = "" if account.is_over else " so far"
    waiting, again = _hours(account.waiting_seconds), _hours(account.lost_seconds)
    yield f"{_hours(account.elapsed_seconds)} h elapsed{ended}, {waiting} h without an instance"
    yield f"{counted(account.interruptions, 'interruption')}; {_steps(account)}; {again} h of work done again"
    total, saved = account.total, account.saved_dollars
    if saved is None:
        yield "saved: unknown, because a price is"
    elif total.list_dollars:
        yield f"${saved:,.2f} less than On-Demand ({100 * saved / total.list_dollars:.0f}%)"
    yield f"On-Demand prices: {'; '.join(account.price_sources) or _UNKNOWN}"
    if total.assumed_seconds:
        yield f"Spot price unknown for {_hours(total.assumed_seconds)} h: counted at the On-Demand price"
    if total.unpriced_seconds:
        yield f"the cost is without {_hours(total.unpriced_seconds)} h of unknown price"
    if account.is_cut:
        yield "earlier attempts are not included: only the last 100 are stored"
    yield (
        "not included: instances that never had the job, the time after they released it, volumes, EFS, S3, "
        "traffic"
    )


def _hours(seconds: float) -> str:
    """Return a duration in hours."""
    return f"{seconds / 3600:,.2f}"


def _dollars(charge: Charge) -> str:
    """Return the cost of a time: an upper bound if a price is assumed, a lower one if a price is missing."""
    if charge.unpriced_seconds:
        return f"over ${charge.dollars:,.2f}" if charge.dollars else _UNKNOWN
    return f"{'up to ' if charge.assumed_seconds else ''}${charge.dollars:,.2f}"


def _cells(charge: Charge) -> tuple[str, str, str]:
    listed = f"${charge.list_dollars:,.2f}"
    if charge.unlisted_seconds:
        listed = f"over {listed}" if charge.list_dollars else _UNKNOWN
    return _hours(charge.seconds), _dollars(charge), listed


def _steps(account: RunAccount) -> str:
    if not account.unreported_attempts:
        return f"{account.repeated_steps:,} steps repeated"
    missing = f"{counted(account.unreported_attempts, 'attempt')} without a report"
    if not account.repeated_steps:
        return f"steps repeated: {_UNKNOWN} ({missing})"
    return f"at least {account.repeated_steps:,} steps repeated ({missing})"


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
