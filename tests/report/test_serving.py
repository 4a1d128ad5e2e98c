"""Page and terminal summary of a service with real workers."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from rehearsal.report.page import render
from rehearsal.report.summary import headline, render_summary
from rehearsal.results.run import Run
from rehearsal.results.serving import API, OFFICE, ON_DEMAND, SPOT, ReplyWaits, Sample, Served, ServedGroup
from rehearsal.results.summary import summarise

OCR = ServedGroup(
    name="ocr",
    command=("spot-work", "recognise:read"),
    target=4,
    runs={SPOT: 6000, ON_DEMAND: 2000, OFFICE: 1000},
    unmarked_duplicates=0,
    run_again=2,
    came_back=10,
    drained=4,
    overdue=1,
    killed=3,
    interruptions=6,
    unannounced=2,
    spot_starts=8,
    on_demand_starts=4,
    paid=2.0,
    all_on_demand=4.0,
)
PAGES = replace(
    OCR,
    name="pages",
    command=("spot-work", "preprocess:read"),
    target=2,
    runs={SPOT: 2100, ON_DEMAND: 600, OFFICE: 300},
    run_again=0,
    came_back=3,
    drained=2,
    overdue=0,
    killed=2,
    interruptions=3,
    unannounced=1,
    paid=0.5,
    all_on_demand=1.0,
)
SERVED = Served(
    pace=60.0,
    requests=3050,
    answered=3050,
    lost=0,
    wrong=0,
    sources={SPOT: 2000, ON_DEMAND: 500, OFFICE: 245, API: 305},
    failed_calls=34,
    withheld_calls=7,
    waits=ReplyWaits(0.12, 2.3, 2.9, 4.9),
    groups=(OCR, PAGES),
    samples=(
        Sample(0, 0, {"ocr": 0, "pages": 0}),
        Sample(1, 27, {"ocr": 0, "pages": 0}),
        Sample(2, 1, {"ocr": 4, "pages": 2}),
    ),
)


@pytest.fixture
def served(run: Run) -> Run:
    return replace(run, served=SERVED)


def test_the_summary_has_every_count_and_the_samples(served: Run) -> None:
    service = json.loads(json.dumps(summarise(served)))["service"]
    assert service["requests"] == service["answered"] == 3050
    assert (service["lost"], service["unmarked_duplicates"], service["run_again"]) == (0, 0, 2)
    assert service["over_time"] == [[0, 0, 0], [1, 0, 27], [2, 6, 1]]
    assert sum(service["answered_by"].values()) == service["answered"]
    assert service["wait_seconds"] == {"p50": 0.12, "p95": 2.3, "p99": 2.9, "longest": 4.9}
    assert service["cost_vs_on_demand"] == 0.5
    assert [group["runs_by"] for group in service["services"]] == [dict(OCR.runs), dict(PAGES.runs)]


def test_the_terminal_says_that_nothing_was_lost(served: Run) -> None:
    written = io.StringIO()
    Console(file=written, width=140).print(render_summary(summarise(served)))
    said = " ".join(written.getvalue().split())
    assert "3,050 requests, all answered" in said
    assert "3,050 answered, none lost" in said
    assert "6 drained in time, 1 overdue, 5 killed without notice" in said
    assert "34 failed and 7 withheld at the limit, both left to the queue" in said


def test_the_headline_names_its_world_and_what_is_not_billed(served: Run) -> None:
    text = headline(summarise(served))
    assert text.startswith("Rehearsed on one machine: 3,050 requests, all answered, 10.0% by the external")
    assert text.endswith("the AWS instances for 50.0% of the On-Demand price, not counting the API's calls")


def test_a_loss_stands_in_the_headline(served: Run) -> None:
    lossy = replace(served, served=replace(SERVED, answered=3048, lost=2))
    assert "3,050 requests, 2 requests lost" in headline(summarise(lossy))
    assert "3,050 requests, all answered, 1 with a wrong text" in headline(
        summarise(replace(served, served=replace(SERVED, wrong=1)))
    )


@pytest.mark.parametrize(
    "bad", [{"answered": 3048, "lost": 2}, {"wrong": 1}, {"groups": (replace(OCR, unmarked_duplicates=1),)}]
)
def test_a_run_with_a_loss_a_wrong_text_or_an_unmarked_repeat_is_not_whole(bad: dict[str, Any]) -> None:
    assert SERVED.is_whole
    assert not replace(SERVED, **bad).is_whole


def test_the_page_shows_waiting_requests_and_real_parts(served: Run, run: Run) -> None:
    page = render(served)
    assert '<figure id="waiting"' in page
    assert "at most 27 waited at once, the longest 4.9 s in real time" in page
    assert "real processes, run by the agent" in page
    assert '<figure id="waiting"' not in render(run)


def test_the_page_says_which_machines_answered_and_what_is_not_billed(served: Run) -> None:
    page = render(served)
    assert '<tr><td>external API</td><td class="n" data-label="Requests">305</td>' in page
    assert '<tr><td>office</td><td class="n" data-label="Requests">245</td>' in page
    assert "Not on the bill: the external API&#x27;s calls, the office&#x27;s machine" in page
    assert '<section class="card" id="answered-by">' not in render(replace(served, served=None))
