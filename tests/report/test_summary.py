from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pytest
from rich.console import Console

from gpu_spot.text import duration, percent
from market.replay.ledger import Happening, Ledger, Span
from rehearsal.report import series
from rehearsal.report.summary import render_summary
from rehearsal.results.run import Run
from rehearsal.results.summary import summarise


def integral(line: Sequence[Span], name: str) -> float:
    return sum(getattr(a, name) * (b.tick - a.tick) for a, b in pairwise(line))


@pytest.mark.parametrize("name", ["ready", "spot", "on_demand"])
def test_a_timeline_covers_the_same_instance_time_as_the_ledger(run: Run, name: str) -> None:
    line = series.steps(run)
    assert line[0].tick == 0
    assert line[-1].tick == run.ticks
    assert integral(line, name) == pytest.approx(
        sum(getattr(span, name) * span.ticks for span in run.ledger.spans), rel=1e-3
    )


def test_shortages_sum_up_to_the_missing_availability(run: Run) -> None:
    found = series.shortages(run)
    lost = sum(shortage.lost for shortage in found)
    assert lost == round((1 - run.ledger.availability) * run.target * run.ledger.counted)
    assert sum(shortage.ticks for shortage in found) == round(
        (1 - run.ledger.full_fraction) * run.ledger.counted
    )
    assert all(a.tick + a.ticks < b.tick for a, b in pairwise(found))
    assert any("without notice in g6.xlarge@us-west-2" in shortage.cause for shortage in found)


def test_a_shortage_that_deepens_is_one_shortage_with_the_cause_of_its_beginning(run: Run) -> None:
    ledger = Ledger(run.target, warm_up=0)
    for tick, ticks, ready in ((0, 5, 4), (5, 2, 3), (7, 1, 1), (8, 4, 4)):
        ledger.add(
            Span(tick, ticks, run.target, ready, spot=4, on_demand=0, cost=1.2, refused=False), useless=0
        )
    for kind in ("unannounced", "interruption"):
        ledger.happened(Happening(5, kind, 1, "us-west-2b"))
    made = replace(run, ledger=ledger, hours=0.2)
    cause = "1 interrupted without notice in g6.xlarge@us-west-2b"
    assert series.shortages(made) == [series.Shortage(tick=5, ticks=3, lowest=1, lost=5, cause=cause)]


def test_the_lowest_of_a_shortage_is_not_its_last(run: Run) -> None:
    ledger = Ledger(run.target, warm_up=0)
    for tick, ticks, ready in ((0, 5, 4), (5, 1, 3), (6, 1, 0), (7, 1, 2), (8, 4, 4)):
        ledger.add(
            Span(tick, ticks, run.target, ready, spot=4, on_demand=0, cost=1.2, refused=False), useless=0
        )
    [shortage] = series.shortages(replace(run, ledger=ledger, hours=0.2))
    assert (shortage.tick, shortage.ticks, shortage.lowest) == (5, 3, 0)


def test_losses_add_up_to_the_interruptions(run: Run) -> None:
    counts, found = run.ledger.counts, series.losses(run)
    by_kind = {
        kind: sum(loss.count for loss in found if loss.kind == kind) for kind in ("announced", "unannounced")
    }
    assert by_kind["unannounced"] == counts["unannounced"]
    assert by_kind["announced"] == counts["interruption"] - counts["unannounced"]
    assert all(loss.count > 0 for loss in found)


PROMISED = {
    "resources", "resource_types", "hours", "target", "market", "availability", "cost_vs_on_demand",
    "interruptions", "launch_failures", "on_demand_starts", "wall_seconds",
}  # fmt: skip


def test_the_summary_is_json_with_the_promised_figures_of_the_ledger(run: Run) -> None:
    summary = json.loads(json.dumps(summarise(run)))
    assert set(summary) >= PROMISED
    assert summary["availability"] == run.ledger.availability
    assert summary["cost_vs_on_demand"] == run.ledger.cost
    assert summary["interruptions"] == summary["announced"] + summary["unannounced"]
    assert summary["on_demand_starts"] == run.ledger.counts["launch-on-demand"]
    assert summary["launch_failures"] == run.ledger.counts["refusal"]
    assert summary["resource_types"] == {"aws:ec2/subnet:Subnet": 2, "aws:ec2/vpc:Vpc": 1}
    assert summary["market"] == list(run.market)


def test_the_share_of_spot_and_the_price_give_the_cost(run: Run) -> None:
    summary = summarise(run)
    paid = sum((s.spot + s.on_demand) * s.ticks for s in run.ledger.since_warm_up())
    share = summary["spot_share"]
    cost = paid * (share * run.rules.spot_price + 1 - share) / (run.target * run.ledger.counted)
    assert cost == pytest.approx(summary["cost_vs_on_demand"])


def test_a_market_from_the_model_says_so(run: Run) -> None:
    summary = summarise(replace(run, market="model"))
    assert summary["market"] == "model"
    assert "drawn from the model" in shown(summary)


def shown(summary: dict[str, object]) -> str:
    console = Console(file=io.StringIO(), width=120)
    console.print(render_summary(summary))
    written = console.file
    assert isinstance(written, io.StringIO)
    return written.getvalue()


def test_the_terminal_shows_the_figures(run: Run) -> None:
    summary = summarise(run)
    panel = shown(summary)
    assert percent(summary["availability"], 2) in panel
    assert percent(summary["cost_vs_on_demand"]) in panel
    assert f"{summary['unannounced']} without notice" in panel


@pytest.mark.parametrize(
    ("fraction", "digits", "text"),
    [(1.0, 2, "100.00%"), (0.99999, 2, "99.99%"), (0.9996, 1, "99.9%"), (0.3084, 1, "30.8%"), (0, 0, "0%")],
)
def test_less_than_everything_is_never_shown_as_everything(fraction: float, digits: int, text: str) -> None:
    assert percent(fraction, digits) == text


@pytest.mark.parametrize(
    ("minutes", "text"),
    [(1, "1 min"), (60, "1 h"), (95, "1 h 35 min"), (1500, "1 day 1 h"), (10080, "7 days")],
)
def test_durations_are_written_in_their_two_largest_units(minutes: int, text: str) -> None:
    assert duration(minutes) == text
