"""The moves of a training job on the page."""

from __future__ import annotations

from html import escape

from gpu_spot.text import CAUSES, clock, counted, duration, span
from rehearsal.results.moves import PARTS, JobMigrations, Move


def section(identity: str, title: str, caption: str, heads: str, rows: str) -> str:
    """Return a section of the page with a table."""
    return f"""  <section class="card" id="{identity}">
    <h2>{title}</h2>
    <p class="caption">{escape(caption)}</p>
    <div class="scroll" tabindex="0" role="region" aria-label="{title}">
      <table class="moves">
        <thead><tr>{heads}</tr></thead>
        <tbody>
{rows}
        </tbody>
      </table>
    </div>
  </section>"""


def moves_table(migrations: JobMigrations) -> str:
    """Return the section of the page that lists every move."""
    parts = "".join(
        f'<th scope="col" class="n" title="{escape(text)}">{escape(part)}</th>'
        for part, text in PARTS.items()
    )
    heads = (
        f'<th scope="col">Left (UTC)</th><th scope="col">From → to</th>{parts}<th scope="col" class="n">total'
        '</th><th scope="col" class="n">steps lost</th><th scope="col">Content</th>'
    )
    subject = "job" if migrations.is_on_file_system else "data volume"
    rows = "\n".join(map(_row, migrations.moves))
    return section("moves", f"Moves of the {subject}", _caption(migrations), heads, rows)


def _caption(migrations: JobMigrations) -> str:
    if not migrations.moves:
        return "No interruption: the volume stayed where it was."
    every = duration(migrations.checkpoint_steps * migrations.step_seconds / 60)
    at_most = (
        f", at most {counted(migrations.checkpoint_steps, 'step')} ({every})"
        if migrations.checkpoint_steps
        else ""
    )
    open_end = (
        " At the end of the run the job had not yet resumed after the last interruption."
        if migrations.underway
        else ""
    )
    return (
        "Minutes and seconds until training ran again. After a notice, or when moved from On-Demand to Spot, "
        "the job saves a checkpoint; without a notice it resumes from its last checkpoint"
        f"{at_most}.{open_end}"
    )


def _row(move: Move) -> str:
    time = f'<button class="time" value="{round(1000 * move.lost)}">{clock(move.lost)}</button>'
    zones = f"{move.from_zone} → {move.to_zone}"
    volumes = move.from_volume
    if move.to_volume != move.from_volume:
        volumes += f" → {move.to_volume}"
    parts = "".join(_cell(part, _span(seconds)) for part, seconds in move.parts.items())
    content = (
        f"equal, {counted(move.after.files, 'file')}"
        if move.intact
        else f"DIFFERENT, {move.before.files} → {counted(move.after.files, 'file')}"
    )
    digests = (
        move.before.digest[:12] if move.intact else f"{move.before.digest[:12]} → {move.after.digest[:12]}"
    )
    return (
        f"          <tr><td>{time}<small>{CAUSES[move.cause]}</small></td>"
        f"<td>{escape(zones)}<small>{escape(volumes)}</small></td>{parts}"
        f"{_cell('total', f'<b>{_span(move.seconds)}</b>')}{_cell('steps lost', str(move.steps_lost))}"
        f"<td>{content}<small>{digests}</small></td></tr>"
    )


def _cell(label: str, shown: str) -> str:
    return f'<td class="n" data-label="{escape(label)}">{shown}</td>'


def _span(seconds: float) -> str:
    return span(seconds) if round(seconds) else "–"
