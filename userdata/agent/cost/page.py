"""The account of a run in words: tables for the terminal, and a page in Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from userdata.agent.cost.account import RunAccount
from userdata.agent.cost.prices import Charge

UNKNOWN: Final = "unknown"


@dataclass(frozen=True, slots=True)
class AccountTable:
    """A table of an account. Of each row the first ``texts`` cells are texts, the others numbers."""

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
        (phase, hours(seconds), f"{100 * seconds / total.seconds:.1f}%")
        for phase, seconds in account.phases.items()
    ]
    return (
        AccountTable(
            ("market", "type", "zone", "hours", "cost", "On-Demand"),
            (*pools, ("total", "", "", *_cells(total))),
            texts=3,
        ),
        AccountTable(
            ("phase", "hours", "share"), (*phases, ("total", hours(total.seconds), "100.0%")), texts=1
        ),
    )


def notes(account: RunAccount) -> Iterator[str]:
    """Yield one-line statements: losses, waiting time, prices, and what the totals are without."""
    ended = "" if account.is_over else " so far"
    waiting, again = hours(account.waiting_seconds), hours(account.lost_seconds)
    yield f"{hours(account.elapsed_seconds)} h elapsed{ended}, {waiting} h without an instance"
    yield f"{_count(account.interruptions, 'interruption')}; {_steps(account)}; {again} h of work done again"
    total, saved = account.total, account.saved_dollars
    if saved is None:
        yield "saved: unknown, because a price is"
    elif total.list_dollars:
        yield f"${saved:,.2f} less than On-Demand ({100 * saved / total.list_dollars:.0f}%)"
    yield f"On-Demand prices: {'; '.join(account.price_sources) or UNKNOWN}"
    if total.assumed_seconds:
        yield f"Spot price unknown for {hours(total.assumed_seconds)} h: counted at the On-Demand price"
    if total.unpriced_seconds:
        yield f"the cost is without {hours(total.unpriced_seconds)} h of unknown price"
    if account.is_cut:
        yield "earlier attempts are not included: only the last 100 are stored"
    yield (
        "not included: instances that never had the job, the time after they released it, volumes, EFS, S3, "
        "traffic"
    )


def markdown(account: RunAccount, job: str, run: str, state: str) -> str:
    """Return the account as a page. ``state``: of the run, such as ``done``."""
    at = datetime.fromtimestamp(account.at, UTC).strftime("%Y-%m-%d %H:%M")
    parts = [f"# What {job} cost", f"Run `{run}`, {state}, {at} UTC."]
    for table in tables(account):
        align = ["---"] * table.texts + ["---:"] * (len(table.columns) - table.texts)
        parts.append("\n".join(map(_line, (table.columns, align, *table.rows))))
    parts.append("\n".join(f"- {note}" for note in notes(account)))
    return "\n\n".join(parts) + "\n"


def hours(seconds: float) -> str:
    """Return a duration in hours."""
    return f"{seconds / 3600:,.2f}"


def dollars(charge: Charge) -> str:
    """Return the cost of a time: an upper bound if a price is assumed, a lower one if a price is missing."""
    if charge.unpriced_seconds:
        return f"over ${charge.dollars:,.2f}" if charge.dollars else UNKNOWN
    return f"{'up to ' if charge.assumed_seconds else ''}${charge.dollars:,.2f}"


def _cells(charge: Charge) -> tuple[str, str, str]:
    listed = f"${charge.list_dollars:,.2f}"
    if charge.unlisted_seconds:
        listed = f"over {listed}" if charge.list_dollars else UNKNOWN
    return hours(charge.seconds), dollars(charge), listed


def _steps(account: RunAccount) -> str:
    if not account.unreported_attempts:
        return f"{account.repeated_steps:,} steps repeated"
    missing = f"{_count(account.unreported_attempts, 'attempt')} without a report"
    if not account.repeated_steps:
        return f"steps repeated: {UNKNOWN} ({missing})"
    return f"at least {account.repeated_steps:,} steps repeated ({missing})"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
