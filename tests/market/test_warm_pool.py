"""A bounded warm pool in the engine: who starts from it is ready sooner, and who is released fills it up."""

from __future__ import annotations

from typing import Any

import pytest

from market.replay.ledger import Ledger
from research.simulation.comparison.contenders import named
from research.simulation.comparison.runs import play
from tests.market.markets import market, ready, trace

# On-demand is bought at the start, handed back at tick 3, bought again at the loss of tick 10.
UP_AND_DOWN = (*[1] * 10, *[0] * 10)


def run(*samples: int, target: int = 2, warm: int | None, **rules: Any) -> Ledger:
    given = {"notice": 0.0, "warm_instances": warm, "warm_price": 0.01} | rules
    sold, chosen = market(trace(*(samples or UP_AND_DOWN)), pool_size=target, **given)
    (contender,) = named("ready-handover")
    return play(sold, chosen, contender, target, keep_spans=True)


def standby(ledger: Ledger) -> list[float]:
    return [span.standby for span in ledger.spans for _ in range(span.ticks)]


def test_what_the_pool_cannot_give_boots_in_full() -> None:
    assert ready(run(warm=None))[10:14] == [0, 2, 2, 2]
    assert ready(run(warm=2))[10:14] == [0, 2, 2, 2]
    assert ready(run(warm=1))[10:14] == [0, 1, 1, 2]
    assert ready(run(warm=0))[10:14] == [0, 0, 0, 2]


def test_without_reuse_a_released_instance_is_replaced_in_the_pool() -> None:
    ledger = run(warm=2)
    assert standby(ledger)[:7] == pytest.approx([0.0, 0.0, 0.0, 2.0, 2.0, 2.0, 0.02])
    assert ledger.standby_cost == pytest.approx(sum(standby(ledger)) / (2 * 20))


def test_with_reuse_a_released_instance_returns_and_none_is_prepared() -> None:
    ledger = run(warm=2, warm_reuse=True)
    assert standby(ledger)[:7] == pytest.approx([0.0, 0.0, 0.0, 0.02, 0.02, 0.02, 0.02])
    assert ready(ledger)[10:14] == [0, 2, 2, 2]


@pytest.mark.parametrize(("reuse", "drain", "filled"), [(True, 60.0, 5), (True, 120.0, 6), (False, 0.0, 6)])
def test_a_released_instance_can_be_started_again_once_stopped(
    reuse: bool, drain: float, filled: int
) -> None:
    # Handed back at tick 3: drained, and a minute later stopped; another one is prepared in three.
    for lost, boot in ((filled - 1, 3), (filled, 1)):
        samples = (*[1] * lost, *[0] * (20 - lost))
        ledger = run(*samples, warm=2, warm_reuse=reuse, drain_seconds=drain)
        assert ready(ledger)[lost:].index(2) == boot


def test_a_cold_started_instance_returns_only_if_the_pool_lacks_one() -> None:
    ledger = run(warm=1, warm_reuse=True)
    assert standby(ledger)[:5] == pytest.approx([0.0, 0.0, 0.0, 0.01, 0.01])


def test_a_lost_warm_instance_is_replaced_by_its_successor() -> None:
    ledger = run(warm=2, warm_reuse=True, warm_refusal=1.0)
    assert ready(ledger)[10:14] == [0, 0, 0, 2]
    assert standby(ledger)[3:5] == pytest.approx([0.02, 0.02])


@pytest.mark.parametrize("reuse", [True, False])
def test_the_pool_is_no_part_of_what_the_run_costs(reuse: bool) -> None:
    ledger = run(warm=2, warm_reuse=reuse)
    assert ledger.cost == run(warm=None).cost
    assert ledger.cost_with_everything == ledger.cost + ledger.standby_cost > ledger.cost
    assert run(warm=None, warm_reuse=reuse).standby_cost == 0
