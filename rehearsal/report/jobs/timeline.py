"""The timeline of a training job on the page: a strip and a table of its attempts."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from gpu_spot.jobs.report import JobReport
from gpu_spot.jobs.text import COLUMNS, timeline_row, totals
from gpu_spot.text import clock
from userdata.agent.cost.timeline import AttemptSummary, JobTimeline


def job_timeline(job: JobReport) -> str:
    """Return the section of the page with a job's timeline, as in ``gpu-spot jobs show``."""
    timeline = job.timeline
    if timeline is None or not timeline.attempts:
        return ""
    state = f"{job.status.phase}. {job.status.reason}".removesuffix(". ")
    totals_text = "; ".join(f"{name} {words}" for name, words in totals(timeline))
    heads = "".join(
        f'<th scope="col"{" class=" + chr(34) + "n" + chr(34) if number > 1 and number != 3 else ""}>'
        f"{escape(column)}</th>"
        for number, column in enumerate(COLUMNS)
    )
    rows = "\n".join(map(_row, timeline.attempts))
    source = "As recorded by its instances and shown by <code>gpu-spot jobs show</code>."
    return f"""  <section class="card" id="job">
    <h2>The job {escape(job.snapshot.name)}: {escape(state)}</h2>
    <p class="caption">{escape(totals_text)}. {source}</p>
{_strip(timeline)}
    <div class="scroll" tabindex="0" role="region" aria-label="Timeline of the job">
      <table class="moves">
        <thead><tr>{heads}</tr></thead>
        <tbody>
{rows}
        </tbody>
      </table>
    </div>
  </section>"""


def _strip(timeline: JobTimeline) -> str:
    begin, end = timeline.attempts[0].launched, max(attempt.ended_at for attempt in timeline.attempts)
    parts = "".join(
        f'<i class="{kind}" style="left:{100 * (since - begin) / (end - begin):.3f}%;'
        f'width:{100 * (ended_at - since) / (end - begin):.3f}%" title="{escape(title)}"></i>'
        for kind, since, ended_at, title in _parts(timeline)
        if end > begin
    )
    legend = "".join(
        f'<span><i class="{kind}"></i>{text}</span>'
        for kind, text in (("spot", "spot"), ("on-demand", "on-demand"), ("lost", "repeated"))
    )
    return (
        f'    <div class="strip" role="img" aria-label="Where the job ran, {clock(begin)} to {clock(end)}">'
        f'{parts}</div>\n    <p class="legend">{legend}<span>{clock(begin)} to {clock(end)} UTC</span></p>'
    )


def _parts(timeline: JobTimeline) -> Iterator[tuple[str, float, float, str]]:
    for attempt in timeline.attempts:
        if attempt.started is None:
            continue
        kind = "spot" if attempt.attempt.purchase_option == "spot" else "on-demand"
        record = attempt.attempt
        title = f"{clock(attempt.started)}, {record.zone}, {record.instance_type}, {record.purchase_option}"
        yield kind, attempt.started, attempt.ended_at, title
        # Time lost by restarts on the same instance is drawn at the end, too.
        if attempt.lost_seconds:
            yield (
                "lost",
                max(attempt.started, attempt.ended_at - attempt.lost_seconds),
                attempt.ended_at,
                "repeated",
            )


def _row(attempt: AttemptSummary) -> str:
    when, *cells = timeline_row(attempt)
    since = attempt.began if attempt.started is None else attempt.started
    first = f'<td><button class="time" value="{round(1000 * since)}">{when}</button></td>'
    where = f"<td>{escape(cells[0])}<small>{escape(attempt.attempt.instance)}</small></td>"
    rest = "".join(
        f"<td>{escape(text)}</td>"
        if number == 3
        else f'<td class="n" data-label="{name}">{escape(text)}</td>'
        for number, (name, text) in enumerate(zip(COLUMNS[2:], cells[1:], strict=True), start=2)
    )
    return f"          <tr>{first}{where}{rest}</tr>"
