"""Progress of a rehearsal in the terminal: a line about the market, then a progress bar."""

from __future__ import annotations

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from market.replay.ledger import Span
from rehearsal.rehearse import RehearsalSetup


class TerminalProgress:
    """See ``ProgressListener``; call ``close`` at the end of the rehearsal."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._progress = Progress(
            TextColumn("{task.fields[day]}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f} %"),
            TextColumn(
                "[green]{task.fields[ready]}[/]/{task.fields[target]} ready  "
                "[blue]{task.fields[spot]} spot[/]  [yellow]{task.fields[on_demand]} on-demand[/]"
            ),
            TimeElapsedColumn(),
            console=console,
        )

    def begin(self, setup: RehearsalSetup) -> None:
        """See ``ProgressListener``."""
        self._console.print(f"\n[bold]Market[/]: {_market_text(setup)}; rehearsing {setup.ticks / 60:g} h\n")
        self._progress.start()
        self._task = self._progress.add_task(
            "", total=setup.ticks, day="day 1 00:00", ready=0, target=setup.target, spot=0, on_demand=0
        )

    def on_tick(self, tick: int, span: Span) -> None:
        """See ``ProgressListener``."""
        minutes = tick % 1440
        self._progress.update(
            self._task,
            completed=tick + span.ticks,
            day=f"day {tick // 1440 + 1} {minutes // 60:02}:{minutes % 60:02}",
            ready=span.ready,
            spot=span.spot,
            on_demand=span.on_demand,
        )

    def close(self) -> None:
        """Stop the progress bar."""
        self._progress.stop()


def _market_text(setup: RehearsalSetup) -> str:
    market = setup.market
    pools = ", ".join(f"{n} → {p}" for n, p in zip(market.names, setup.shape.pools, strict=True))
    kinds = {
        "model": "drawn from the fitted model (no trace given)",
        "script": "scripted, the zones close one after the other",
    }
    kind = kinds[setup.source] if isinstance(setup.source, str) else "real traces"
    return f"{kind}: {pools}; {market.pool_size} instances per sample"
