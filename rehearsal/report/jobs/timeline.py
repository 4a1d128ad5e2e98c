"""The timeline of a training job on the page: a strip of where it ran, and every stay."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from gpu_spot.jobs.account import JobAccount
from gpu_spot.jobs.text import COLUMNS, row_of, totals
from gpu_spot.jobs.timeline import Chapter, Story
from gpu_spot.text import clock


def job_timeline(job: JobAccount) -> str:
    """Return the section of the page that tells a job's run as ``gpu-spot jobs show`` does."""
    story = job.story
    if story is None or not story.chapters:
        return ""
    state = f"{job.standing.phase}. {job.standing.why}".removesuffix(". ")
    told = "; ".join(f"{name} {words}" for name, words in totals(story))
    heads = "".join(
        f'<th scope="col"{" class=" + chr(34) + "n" + chr(34) if number > 1 and number != 3 else ""}>'
        f"{escape(column)}</th>"
        for number, column in enumerate(COLUMNS)
    )
    rows = "\n".join(map(_row, story.chapters))
    source = "As its instances wrote it down, and <code>gpu-spot jobs show</code> tells it."
    return f"""  <section class="card" id="job">
    <h2>The job {escape(job.seen.name)}: {escape(state)}</h2>
    <p class="caption">{escape(told)}. {source}</p>
{_strip(story)}
    <div class="scroll" tabindex="0" role="region" aria-label="Timeline of the job">
      <table class="moves">
        <thead><tr>{heads}</tr></thead>
        <tbody>
{rows}
        </tbody>
      </table>
    </div>
  </section>"""


def _strip(story: Story) -> str:
    begin, end = story.chapters[0].launched, max(one.until for one in story.chapters)
    parts = "".join(
        f'<i class="{kind}" style="left:{100 * (since - begin) / (end - begin):.3f}%;'
        f'width:{100 * (until - since) / (end - begin):.3f}%" title="{escape(title)}"></i>'
        for kind, since, until, title in _parts(story)
        if end > begin
    )
    legend = "".join(
        f'<span><i class="{kind}"></i>{text}</span>'
        for kind, text in (("spot", "spot"), ("on-demand", "on-demand"), ("lost", "redone"))
    )
    return (
        f'    <div class="strip" role="img" aria-label="Where the job ran, {clock(begin)} to {clock(end)}">'
        f'{parts}</div>\n    <p class="legend">{legend}<span>{clock(begin)} to {clock(end)} UTC</span></p>'
    )


def _parts(story: Story) -> Iterator[tuple[str, float, float, str]]:
    for one in story.chapters:
        if one.started is None:
            continue
        kind = "spot" if one.stint.market == "spot" else "on-demand"
        title = f"{clock(one.started)}, {one.stint.zone}, {one.stint.instance_type}, {one.stint.market}"
        yield kind, one.started, one.until, title
        # What restarts on the same instance lost lay somewhere before; it is drawn at the end, too.
        if one.lost_seconds:
            yield "lost", max(one.started, one.until - one.lost_seconds), one.until, "redone"


def _row(one: Chapter) -> str:
    when, *cells = row_of(one)
    since = one.began if one.started is None else one.started
    first = f'<td><button class="time" value="{round(1000 * since)}">{when}</button></td>'
    where = f"<td>{escape(cells[0])}<small>{escape(one.stint.instance)}</small></td>"
    rest = "".join(
        f"<td>{escape(text)}</td>"
        if number == 3
        else f'<td class="n" data-label="{name}">{escape(text)}</td>'
        for number, (name, text) in enumerate(zip(COLUMNS[2:], cells[1:], strict=True), start=2)
    )
    return f"          <tr>{first}{where}{rest}</tr>"
