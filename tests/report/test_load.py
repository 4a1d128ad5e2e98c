"""Page and terminal summary of a service under load."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from market.load.account import LoadAccount, LoadedService
from market.load.queue import RequestQueue
from market.load.shapes import DAY_WITH_A_BURST
from rehearsal.report.figures import figures
from rehearsal.report.page import render
from rehearsal.report.summary import render_summary
from rehearsal.results.run import Run
from rehearsal.results.summary import summarise

SPEEDS, HOURLY = {"g6.xlarge": 0.25, "g5.xlarge": 0.31}, {"g6.xlarge": 0.80, "g5.xlarge": 1.01}


def played(ticks: int, workers: int, peak: float = 1.0, warm_up: int = 60) -> LoadAccount:
    service = LoadedService.of(DAY_WITH_A_BURST, peak, ticks, SPEEDS, seed=1)
    for _ in range(ticks):
        service.minute({"g6.xlarge": workers}, target=workers, paid=0.8 * workers * 0.3 / 60)
    return service.account(60.0, warm_up, HOURLY, {})


@pytest.fixture(scope="module")
def loaded(run: Run) -> Run:
    return replace(run, load=played(300, 6))


def test_the_account_leaves_the_warm_up_out_and_sizes_for_the_busiest_five_minutes() -> None:
    # Nobody is there for an hour; then two a second for five minutes, one a second before and after.
    arrivals = [1] * 3600 + [1] * 900 + [2] * 300 + [1] * 2400
    service = LoadedService(arrivals, SPEEDS, RequestQueue(np.asarray(arrivals), 1))
    for minute in range(120):
        service.minute({} if minute < 30 else {"g6.xlarge": 40}, target=40, paid=0.5)
    account = service.account(60.0, 60, HOURLY, {"g6.xlarge": 2})
    assert account.requests == sum(arrivals[3600:])
    # 8 workers of 0.25 are 4 instances with two each, 3.2 $/h; 7 of the other type are 7.07.
    assert (account.peak.instance_type, account.peak.count) == ("g6.xlarge", 4)
    assert account.on_demand == pytest.approx(3.2)
    assert account.paid == pytest.approx(30.0)
    assert account.p99_seconds < 60 < account.waits[0].half  # type: ignore[operator]


def test_more_workers_wait_less_for_more_money() -> None:
    few, many = played(240, 1), played(240, 8)
    assert few.p99_seconds > 60 > many.p99_seconds
    assert few.late > many.late == 0
    assert few.paid < many.paid
    assert few.on_demand == many.on_demand


def test_no_requests_no_wait() -> None:
    silent = played(90, 1, peak=1e-9)
    assert (silent.requests, silent.p99_seconds, silent.late) == (0, 0.0, 0.0)
    assert all(wait.p99_seconds is None for wait in silent.waits)


def test_summary_and_terminal_have_the_results(loaded: Run) -> None:
    load = json.loads(json.dumps(summarise(loaded)))["load"]
    assert load["bill_vs_peak"] == pytest.approx(load["bill"] / load["on_demand_for_peak"], rel=0.01)
    assert (load["least_ready"], load["most_ready"]) == (6, 6)
    written = io.StringIO()
    Console(file=written, width=160).print(render_summary(summarise(loaded)))
    said = " ".join(written.getvalue().split())
    assert f"99 % started within {load['p99_wait_seconds']:.0f} s (limit 60 s)" in said
    assert f"${load['bill']:.2f}" in said


def test_the_page_begins_with_the_load_and_compares_with_no_fixed_target(loaded: Run) -> None:
    drawn = figures(loaded)
    assert [figure.id for figure in drawn][:2] == ["load", "capacity"]
    assert not {"ready", "money", "share"} & {figure.id for figure in drawn}
    axes = {trace["yaxis"] for trace in drawn[0].data}
    assert axes == {"y", "y2", "y3", "y4"}
    assert drawn[0].timeline
    page = render(loaded)
    assert 'id="total-p99_wait_seconds"' in page
    assert "min(ready workers, target) ÷ target" in page
