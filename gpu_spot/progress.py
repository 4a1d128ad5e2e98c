"""The progress line of commands that take more than some seconds, on standard error if it is a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn
from rich.text import Text


class TimesColumn(ProgressColumn):
    """The time that has passed, and the time left once it can be estimated."""

    def render(self, task: Task) -> Text:
        """Return both in hours, minutes and seconds."""
        remaining = (
            "" if task.time_remaining is None else f", {timedelta(seconds=int(task.time_remaining))} left"
        )
        return Text(f"{timedelta(seconds=int(task.elapsed or 0))} passed{remaining}")


@contextmanager
def progress(description: str) -> Iterator[Callable[[int, int | None], None]]:
    """Show a line until the block ends; call what it yields with how much is done, and of how much in all.

    It is removed at the end, and absent where standard error is not a terminal.
    """
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TimesColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as shown:
        task = shown.add_task(description, total=None)
        yield lambda done, total: shown.update(task, completed=done, total=total)
