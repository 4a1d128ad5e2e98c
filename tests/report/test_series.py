from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pytest

from market.replay.ledger import Happening, Ledger, Span
from rehearsal.report import series
from rehearsal.report.series import TimelineStep
from rehearsal.results.run import Run


def integral(line: Sequence[TimelineStep], name: str) -> float:
    return sum(getattr(a, name) * (b.tick - a.tick) for a, b in pairwise(line))


@pytest.mark.parametrize("name", ["ready", "spot", "on_demand"])
@pytest.mark.parametrize("limit", [10**6, 1], ids=["every change", "averages"])
def test_a_timeline_covers_the_same_instance_time_as_the_ledger(run: Run, name: str, limit: int) -> None:
    line = series.steps(run, limit)
    assert line[0].tick == 0
    assert line[-1].tick == run.ticks
    assert integral(line, name) == pytest.approx(
        sum(getattr(span, name) * span.ticks for span in run.ledger.spans), rel=1e-3
    )


def test_a_timeline_with_too_many_changes_is_averaged_over_a_bounded_number_of_stretches(run: Run) -> None:
    assert series.stretch(run) == 1
    assert series.stretch(run, limit=1) == 3
    assert len(series.steps(run, limit=1)) <= series.STRETCHES + 1


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


def test_only_the_worst_shortages_are_marked() -> None:
    found = [series.Shortage(tick, 1, 0, tick % 7, "") for tick in range(0, 3 * series.SHORTAGES, 2)]
    marked = series.worst(found)
    assert len(marked) == series.SHORTAGES
    assert marked == sorted(marked, key=lambda s: s.tick)
    assert min(s.lost for s in marked) >= max(s.lost for s in found if s not in marked)


def test_the_account_ends_at_the_cost_of_the_ledger(run: Run) -> None:
    end = series.money(run)[-1]
    assert (end.spot + end.on_demand) / end.all_on_demand == pytest.approx(run.ledger.cost)
    assert end.tick == run.ticks


def test_the_spending_of_all_bins_averages_to_the_cost_of_the_ledger(run: Run) -> None:
    bins = series.spending(run)
    assert len(bins) <= series.BINS
    paid = sum((spot + on_demand) * length for _, length, spot, on_demand in bins)
    assert paid / sum(length for _, length, *_ in bins) == pytest.approx(run.ledger.cost)


def test_losses_add_up_to_the_interruptions_over_time_and_by_pool(run: Run) -> None:
    counts = run.ledger.counts
    for bars in (series.lost_over_time(run), series.lost_by_pool(run)):
        assert sum(lost.unannounced for lost in bars.values()) == counts["unannounced"]
        assert sum(lost.announced for lost in bars.values()) == counts["interruption"] - counts["unannounced"]
    assert all(loss.count > 0 for loss in series.losses(run))


def capacity_at(changes: Sequence[tuple[int, int]], tick: int) -> int:
    return [capacity for at, capacity in changes if at <= tick][-1]


def test_the_grid_of_the_market_is_the_capacity_tick_by_tick(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    for limit in (10**6, 1):
        monkeypatch.setattr(series, "STEPS", limit)
        edges, rows = series.capacity_grid(run)
        assert (edges[0], edges[-1]) == (0, run.ticks)
        for name, row in zip(run.pools, rows, strict=True):
            for (left, right), mean in zip(pairwise(edges), row, strict=True):
                exact = [capacity_at(run.capacities[name], tick) for tick in range(left, right)]
                assert mean == pytest.approx(sum(exact) / len(exact))
