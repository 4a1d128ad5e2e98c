"""A bounded warm pool in the engine: who starts from it is ready sooner, and what is taken is replaced."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench import warm_pool
from gpu_spot.market.comparison.contenders import named
from gpu_spot.market.comparison.runs import play
from gpu_spot.market.replay.ledger import Ledger
from tests.market.markets import market, trace


def run(*, target: int = 2, warm: int | None, up: int = 10) -> Ledger:
    sold, chosen = market(
        trace(*[1] * up, *[0] * (20 - up)), pool_size=target, notice=0.0, warm_instances=warm, warm_price=0.01
    )
    (contender,) = named("ready-handover")
    return play(sold, chosen, contender, target, keep_spans=True)


def ready(ledger: Ledger) -> list[int]:
    return [span.ready for span in ledger.spans for _ in range(span.ticks)]


def standby(ledger: Ledger) -> list[float]:
    return [span.standby for span in ledger.spans for _ in range(span.ticks)]


def test_what_the_pool_cannot_give_boots_in_full() -> None:
    # On-demand is bought at the start, handed back at tick 3, bought again at the loss of tick 10.
    assert ready(run(warm=None))[10:14] == [0, 2, 2, 2]
    assert ready(run(warm=2))[10:14] == [0, 2, 2, 2]
    assert ready(run(warm=1))[10:14] == [0, 1, 1, 2]
    assert ready(run(warm=0))[10:14] == [0, 0, 0, 2]


def test_who_is_taken_is_replaced_a_cold_start_later() -> None:
    # Spot is gone from tick 2 on: the one of the pool went at tick 0, the next is prepared at tick 3.
    ledger = run(warm=1, up=1)
    assert standby(ledger)[:5] == pytest.approx([1.0, 1.0, 1.0, 0.01, 0.01])


def test_a_pool_costs_its_preparations_and_little_while_it_waits_and_the_run_costs_the_same() -> None:
    ledger = run(warm=2)
    assert standby(ledger)[:4] == pytest.approx([2.0, 2.0, 2.0, 0.02])
    assert ledger.standby_cost == pytest.approx(sum(standby(ledger)) / (2 * 20))
    assert ledger.cost == run(warm=None).cost
    assert run(warm=None).standby_cost == 0


def test_the_size_that_a_stack_takes_is_near_the_best(tmp_path: Path, traces: Path | None) -> None:
    out = tmp_path / "warm-pool.json"
    docs = tmp_path / "docs"
    warm_pool.main(["--out", str(out), "--seeds", "1", "--scenarios", "1", "--docs", str(docs)])
    result = json.loads(out.read_text())
    rows = {row["shortage_cost"]: row for row in result["summary"]}
    assert rows[100.0]["chosen_vs_best"] <= 1.02
    assert rows[100.0]["none_vs_best"] >= 1.2
    assert rows[1.2]["chosen_vs_best"] <= 1.02
    assert max(row["worst_chosen_vs_best"] for row in rows.values()) <= 1.1
    assert not docs.exists()  # a reduced count is not published
