"""The figure of the location of a training job's data volume."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from gpu_spot.text import CAUSES, counted, duration
from rehearsal.report.plotting import LOST, WIDE_LEFT, Data, Figure, filled, line, markers, time_layout
from rehearsal.results.moves import Cause, JobMigrations, Move, Stay
from rehearsal.results.run import Run

_MARKS: Final[Mapping[Cause, tuple[str, str]]] = {
    "notice": ("circle", LOST["announced"]),
    "loss": ("x", LOST["unannounced"]),
    "hand-over": ("diamond", "--on-demand"),
}
"""Symbol and colour of each cause."""


def volume(run: Run, migrations: JobMigrations) -> Figure:
    """Return the figure with a lane for each zone: when the volume was there, and when it was mounted."""
    zones = sorted({pool.partition("@")[2] for pool in run.pools.values()} | set(migrations.zones))
    rows = {zone: row for row, zone in enumerate(zones)}
    in_use = sum(stay.end - stay.begin for stay in migrations.stays if stay.in_use)
    moves = migrations.moves
    facts = (
        f"{counted(len(moves), 'move')}, {sum(m.from_zone != m.to_zone for m in moves)} to another zone; "
        f"in use {duration(in_use / 60)} of {duration(run.ticks)}."
    )
    layout = time_layout(run, 92 + 46 * len(rows), "", left_margin=WIDE_LEFT)
    layout |= {"hovermode": "closest", "barmode": "overlay"}
    layout["yaxis"] |= {
        "tickvals": list(rows.values()),
        "ticktext": zones,
        "range": [len(rows) - 0.5, -0.5],
        "showgrid": False,
    }
    subject = "data volume"
    bars = (
        "one EBS volume in its zone: solid while mounted on an instance, pale while it was created, "
        "moved or free"
    )
    if migrations.is_on_file_system:
        subject, bars = "job", "an instance that had the checkpoints on EFS mounted, in its zone"
    return Figure(
        "volume",
        f"Location of the {subject}",
        f"Each bar is {bars}. A line leads from the end of an instance to the next start of training. "
        f"{facts}",
        f"A lane for each zone with the times at which the {subject} was there: {facts}",
        [
            _bars([s for s in migrations.stays if not s.in_use], rows, "Free or moving", "--open"),
            _bars([s for s in migrations.stays if s.in_use], rows, "Mounted", "--ready"),
            _paths(moves, rows),
            *(_ends(moves, rows, cause) for cause in CAUSES),
        ],
        layout,
        timeline=True,
    )


def _ms(at: float) -> int:
    return round(1000 * at)


def _bars(stays: Sequence[Stay], rows: dict[str, int], name: str, colour: str) -> Data:
    return {
        "type": "bar",
        "name": name,
        "orientation": "h",
        "base": [_ms(stay.begin) for stay in stays],
        "x": [_ms(stay.end) - _ms(stay.begin) for stay in stays],
        "y": [rows[stay.zone] for stay in stays],
        "width": 0.5,
        "marker": filled(colour),
        "text": [
            f"{stay.volume} in {stay.zone}<br>{name.lower()} for {duration((stay.end - stay.begin) / 60)}"
            for stay in stays
        ],
        "textposition": "none",
        "hovertemplate": "%{text}<extra></extra>",
    }


def _paths(moves: Iterable[Move], rows: dict[str, int]) -> Data:
    x: list[int | None] = []
    y: list[float | None] = []
    for move in moves:
        x += [_ms(move.lost), _ms(move.running), None]
        y += [rows[move.from_zone], rows[move.to_zone], None]
    return line("Move", "--ink", x, y)


def _ends(moves: Iterable[Move], rows: dict[str, int], cause: Cause) -> Data:
    symbol, colour = _MARKS[cause]
    shown = [move for move in moves if move.cause == cause]
    return markers(
        CAUSES[cause].capitalize(),
        [_ms(move.lost) for move in shown],
        [rows[move.from_zone] for move in shown],
        [
            f"{CAUSES[cause]}<br>training again in {move.to_zone} after {duration(move.seconds / 60)}"
            for move in shown
        ],
        symbol=symbol,
        size=9,
        color=f"var({colour})",
        line={"width": 1, "color": "var(--card)"},
    )
