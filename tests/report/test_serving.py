"""Page and terminal summary of a service with real workers."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import pytest
from rich.console import Console

from rehearsal.report.page import render
from rehearsal.report.summary import headline, render_summary
from rehearsal.results.run import Run
from rehearsal.results.serving import Sample, Served
from rehearsal.results.summary import summarise

SERVED = Served(
    command=("spot-work", "worker:read"),
    pace=60.0,
    requests=3050,
    answered=3050,
    lost=0,
    unmarked_duplicates=0,
    run_again=2,
    came_back=13,
    longest_wait=4.9,
    mean_wait=0.21,
    drained=6,
    overdue=1,
    killed=5,
    samples=(Sample(0, 0, 0), Sample(1, 27, 0), Sample(2, 1, 4)),
)


@pytest.fixture
def served(run: Run) -> Run:
    return replace(run, served=SERVED)


def test_the_summary_has_every_count_and_the_samples(served: Run) -> None:
    service = json.loads(json.dumps(summarise(served)))["service"]
    assert service["requests"] == service["answered"] == 3050
    assert (service["lost"], service["unmarked_duplicates"], service["run_again"]) == (0, 0, 2)
    assert service["over_time"] == [[0, 0, 0], [1, 0, 27], [2, 4, 1]]


def test_the_terminal_says_that_nothing_was_lost(served: Run) -> None:
    written = io.StringIO()
    Console(file=written, width=140).print(render_summary(summarise(served)))
    said = " ".join(written.getvalue().split())
    assert "3,050 requests, all answered" in said
    assert "3,050 answered, none lost" in said
    assert "6 drained in time, 1 overdue, 5 killed without notice" in said


def test_a_loss_stands_in_the_headline(served: Run) -> None:
    lossy = replace(served, served=replace(SERVED, answered=3048, lost=2))
    assert "3,050 requests, 2 requests lost" in headline(summarise(lossy))
    assert not replace(SERVED, answered=3048, lost=2).is_whole
    assert not replace(SERVED, unmarked_duplicates=1).is_whole
    assert SERVED.is_whole


def test_the_page_shows_waiting_requests_and_real_parts(served: Run, run: Run) -> None:
    page = render(served)
    assert '<figure id="waiting"' in page
    assert "at most 27 waited at once, the longest 4.9 s in real time" in page
    assert "real processes, run by the agent" in page
    assert '<figure id="waiting"' not in render(run)
