from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pytest

from gpu_spot.text import duration, percent
from market.replay.ledger import Happening, Ledger, Span
from rehearsal.report import series
from rehearsal.results.run import Run
from rehearsal.results.summary import summarise
from tests.report.rehearsal import printed


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


@pytest.mark.parametrize(
    ("spans", "lowest", "lost"),
    [
        (((0, 5, 4), (5, 2, 3), (7, 1, 1), (8, 4, 4)), 1, 5),
        (((0, 5, 4), (5, 1, 3), (6, 1, 0), (7, 1, 2), (8, 4, 4)), 0, 7),
    ],
    ids=["it deepens", "its lowest is not its last"],
)
def test_a_shortage_has_its_lowest_and_the_cause_of_its_beginning(
    run: Run, spans: tuple[tuple[int, int, int], ...], lowest: int, lost: int
) -> None:
    ledger = Ledger(run.target, warm_up=0)
    for tick, ticks, ready in spans:
        span = Span(tick, ticks, run.target, ready, spot=4, on_demand=0, cost=1.2, refused=False)
        ledger.add(span, useless=0)
    for kind in ("unannounced", "interruption"):
        ledger.happened(Happening(5, kind, 1, "us-west-2b"))
    made = replace(run, ledger=ledger, hours=0.2)
    cause = "1 interrupted without notice in g6.xlarge@us-west-2b"
    assert series.shortages(made) == [series.Shortage(tick=5, ticks=3, lowest=lowest, lost=lost, cause=cause)]


def test_losses_add_up_to_the_interruptions(run: Run) -> None:
    counts, found = run.ledger.counts, series.losses(run)
    unannounced = sum(loss.count for loss in found if loss.kind == "unannounced")
    assert unannounced == counts["unannounced"]
    assert sum(loss.count for loss in found) - unannounced == counts["interruption"] - unannounced
    assert {loss.kind for loss in found} == {"announced", "unannounced"}
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
    assert "drawn from the model" in printed(summary)


def test_the_terminal_shows_the_figures(run: Run) -> None:
    summary = summarise(run)
    panel = printed(summary)
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
