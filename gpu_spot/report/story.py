"""A job's story in the terminal: who took its instances, and where and when it went on."""

from __future__ import annotations

from rich import box
from rich.table import Table

from gpu_spot.facts.moves import Travels
from gpu_spot.report.text import CAUSES, clock


def render_story(travels: Travels) -> Table:
    """Return a table with a line for each time that the job lost its instance or was handed over."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), title="The job's way", title_justify="left")
    for name in ("left (UTC)", "because", "from → to"):
        table.add_column(name, no_wrap=True)
    for name in ("after", "at step", "lost"):
        table.add_column(name, justify="right")
    for move in travels.moves:
        minutes, seconds = divmod(round(move.seconds), 60)
        numbers = (f"{minutes}:{seconds:02d}", str(move.step), str(move.steps_lost))
        left = clock(move.lost).partition("-")[2]  # the year says nothing
        table.add_row(left, CAUSES[move.cause], f"{move.from_zone} → {move.to_zone}", *numbers)
    return table
