"""The page's timeline of a training job."""

from __future__ import annotations

import re
from dataclasses import replace
from html import unescape

from gpu_spot.jobs.report import JobReport, timeline_of
from gpu_spot.jobs.status import job_status
from rehearsal.report.jobs.timeline import job_timeline
from rehearsal.report.page import render
from rehearsal.results.run import Run
from tests.jobs.snapshots import NOW, job, job_attempt
from userdata.agent.cost.prices import PriceBook

SEEN = job(
    attempts=(
        job_attempt(1, "i-1", 4000, 3000, stopped=0.0, purchase_option="on-demand"),
        job_attempt(2, "i-2", 2000, 5, stopped=0.0, zone="us-west-2b", resumed=NOW - 3500),
    )
)
ACCOUNT = JobReport(SEEN, job_status(SEEN), timeline_of(SEEN, PriceBook(lambda _: 0.36)))


def test_the_page_has_a_row_for_each_stay(run: Run) -> None:
    page = render(replace(run, job=ACCOUNT))
    [card] = re.findall(r'<section class="card" id="job">.*?</section>', page, re.DOTALL)
    rows = re.findall(r"<tr><td>.*?</tr>", card)
    assert [" ".join(unescape(re.sub(r"<[^>]+>", " ", row)).split()) for row in rows] == [
        "2026-01-05 10:53 us-west-2a g6.xlarge on-demand i-1 16:40 without notice 8:20 16:40 $0.13",
        "2026-01-05 11:26 us-west-2b g6.xlarge spot i-2 33:15 running – – up to $0.22",
    ]
    assert "interruptions 1, 1 move to another zone" in card
    assert 'id="job"' not in render(run)


def test_the_strip_shows_spot_on_demand_and_repeated_work() -> None:
    parts = re.findall(r'<i class="([\w-]+)" style="left:([\d.]+)%;width:([\d.]+)%"', job_timeline(ACCOUNT))
    whole = 4195.0  # from the first launch to what was seen last
    assert [kind for kind, _, _ in parts] == ["on-demand", "lost", "spot"]
    for (_, left, width), (begin, seconds) in zip(
        parts, [(200, 1000), (700, 500), (2200, 1995)], strict=True
    ):
        assert abs(float(left) - 100 * begin / whole) < 0.01
        assert abs(float(width) - 100 * seconds / whole) < 0.01


def test_a_job_that_never_ran_has_no_timeline() -> None:
    idle = job()
    assert job_timeline(JobReport(idle, job_status(idle), timeline_of(idle, PriceBook(lambda _: None)))) == ""
