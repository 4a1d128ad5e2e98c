"""Trainings of several nodes on small markets: every second of the outcome is counted by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.parts import node_replay
from market.nodes.timeline import NodeChange, NodeEvent, node_events
from market.nodes.training import NodeCosts, NodeOutcome, NodeRule, train
from tests.market.markets import market, trace

COSTS = NodeCosts(
    stall_seconds=10,
    notice_stall_seconds=2,
    start_seconds=40,
    boot_seconds=180,
    checkpoint_seconds=600,
    first_checkpoint_seconds=600,
)
LOST, NOTICE, READY = NodeChange.LOST, NodeChange.NOTICE, NodeChange.READY


def events(*several: tuple[float, NodeChange, set[int]]) -> list[NodeEvent]:
    return [NodeEvent(second, change, frozenset(nodes)) for second, change, nodes in several]


def steps(rule: NodeRule, seconds: float, *several: tuple[float, NodeChange, set[int]], **costs: Any) -> Any:
    """Return node-seconds of steps that count, and of repeated ones, of four nodes."""
    outcome = train(events(*several), rule, replace(COSTS, **costs), nodes=4, seconds=seconds)
    return pytest.approx(outcome.goodput * 4 * seconds), pytest.approx(outcome.repeated * 4 * seconds)


ALL = NodeRule(fewest=4)
SURVIVORS = NodeRule(fewest=2, joins_early=False)
PEERS = NodeRule(fewest=2, has_peers=True, joins_early=False)
START = (0.0, READY, {0, 1, 2, 3})
SUDDEN = (1040.0, LOST, {3})
BACK = (1400.0, READY, {4})


def test_without_losses_all_seconds_after_the_start_count() -> None:
    assert steps(ALL, 1040, START) == (4 * 1000, 0)


def test_restart_of_all_waits_for_the_last_node_and_repeats_from_the_checkpoint() -> None:
    # Trained 40–1040, saved at 640; all again at 1400, from 1440.
    assert steps(ALL, 2440, START, SUDDEN, BACK) == (4 * 600 + 4 * 1000, 4 * 400)


def test_survivors_go_on_and_the_node_that_comes_joins_at_the_next_save() -> None:
    # Three nodes from 1050; saved at 1650, four from 1652.
    expected = 4 * 600 + 3 * 600 + 4 * (2440 - 1652)
    assert steps(SURVIVORS, 2440, START, SUDDEN, BACK) == (expected, 4 * 400)


def test_with_the_state_in_a_peers_memory_nothing_is_repeated() -> None:
    expected = 4 * 1000 + 3 * 600 + 4 * (2440 - 1652)
    assert steps(PEERS, 2440, START, SUDDEN, BACK) == (expected, 0)


def test_a_node_joins_early_when_it_has_waited_for_what_that_costs_the_others() -> None:
    # Three pay 2 s each, so the fourth waits for 6 s; two pay 4 s, so the two that come wait for 2 s each.
    expected = 4 * 600 + 3 * (1406 - 1050) + 4 * (2440 - 1408)
    assert steps(NodeRule(fewest=2), 2440, START, SUDDEN, BACK) == (expected, 4 * 400)
    two = (1040.0, LOST, {2, 3}), (1400.0, READY, {4, 5})
    expected = 4 * 600 + 2 * (1402 - 1050) + 4 * (2440 - 1404)
    assert steps(NodeRule(fewest=2), 2440, START, *two) == (expected, 4 * 400)


def test_where_a_save_has_a_price_a_node_waits_for_that_long() -> None:
    expected = 4 * 600 + 3 * (1400 + 3 * 42 - 1050) + 4 * (2440 - 1528)
    costs = {"save_price_seconds": 40}
    assert steps(NodeRule(fewest=2), 2440, START, SUDDEN, BACK, **costs) == (expected, 4 * 400)


def test_the_first_save_comes_early() -> None:
    costs = {"first_checkpoint_seconds": 60}
    assert steps(ALL, 1040, START, (740.0, LOST, {3}), **costs) == (4 * 660, 4 * 40)


def test_a_notice_costs_no_step_but_the_nodes_last_seconds() -> None:
    noticed = (1040.0, NOTICE, {3}), (1160.0, LOST, {3})
    assert steps(SURVIVORS, 2042, START, *noticed) == (4 * 1000 + 3 * 600 + 3 * 400, 0)
    assert steps(ALL, 2440, START, *noticed, BACK) == (4 * 1000 + 4 * 1000, 0)


def test_below_the_fewest_no_node_trains_and_without_a_survivor_there_is_no_peer() -> None:
    three = (1040.0, LOST, {1, 2, 3})
    again = (1400.0, READY, {4})
    assert steps(SURVIVORS, 2440, START, three, again) == (4 * 600 + 2 * 1000, 4 * 400)
    assert steps(PEERS, 2440, START, three, again) == (4 * 1000 + 2 * 1000, 0)
    assert steps(PEERS, 2440, START, (1040.0, LOST, {0, 1, 2, 3})) == (4 * 600, 4 * 400)


def test_losses_are_counted_by_node() -> None:
    noticed = (500.0, NOTICE, {0}), (620.0, LOST, {0})
    outcome = train(events(START, *noticed, SUDDEN), SURVIVORS, COSTS, nodes=4, seconds=2000)
    assert (outcome.losses, outcome.sudden) == (2, 1)


def test_a_timeline_follows_the_capacity() -> None:
    spot, _ = market(trace(4, 4, 4, 4, 4, 3, 3, 4, 4, 4, 4, 4), notice=0.0)
    timeline = node_events(spot, [0], nodes=4, fewest=2, boot_seconds=180, seed=1)
    first, lost, back = timeline
    assert (first.second, first.change, len(first.nodes)) == (180, READY, 4)
    assert (lost.second, lost.change, len(lost.nodes)) == (300, LOST, 1)
    assert (back.second, back.change, back.nodes) == (420 + 180, READY, {4})
    assert lost.nodes < first.nodes


def test_what_has_a_notice_is_what_is_lost() -> None:
    spot, _ = market(trace(*[4] * 8, *[2] * 4), notice=1.0)
    [_, noticed, lost] = node_events(spot, [0], nodes=4, fewest=2, boot_seconds=60, seed=1)
    assert (noticed.second, noticed.change) == (360, NOTICE)
    assert (lost.second, lost.nodes) == (480, noticed.nodes)


def test_a_node_that_is_lost_while_it_boots_is_never_ready() -> None:
    spot, _ = market(trace(0, 4, 0, 0, 0, 0), notice=0.0)
    timeline = node_events(spot, [0], nodes=4, fewest=4, boot_seconds=180, seed=1)
    assert [event.change for event in timeline] == [LOST]


def test_all_move_to_the_zone_with_the_most_nodes_when_too_few_are_left() -> None:
    zones = [trace(*[4] * 10, *[1] * 10), trace(*[2] * 20), trace(*[3] * 20)]
    spot, _ = market(*zones, notice=0.0)
    timeline = node_events(spot, [0, 1, 2], nodes=4, fewest=2, boot_seconds=60, seed=1)
    assert [(event.second, event.change, len(event.nodes)) for event in timeline] == [
        (60, READY, 4),
        (600, LOST, 4),
        (660, READY, 3),
    ]


@pytest.mark.parametrize("seed", range(5))
def test_the_more_nodes_go_on_the_more_steps(seed: int) -> None:
    samples = [(number * 7 + seed) % 5 for number in range(40) for _ in range(30)]
    spot, rules = market(trace(*samples), notice=0.5, seed=seed)
    outcomes: list[NodeOutcome] = []
    for fewest in (4, 2, 1):
        timeline = node_events(spot, [0], nodes=4, fewest=fewest, boot_seconds=180, seed=rules.seed)
        seconds = spot.ticks * 60
        outcomes += [
            train(timeline, NodeRule(fewest, has_peers), COSTS, nodes=4, seconds=seconds)
            for has_peers in (False, True)
        ]
    for without, with_peers in zip(outcomes[::2], outcomes[1::2], strict=True):
        assert without.goodput <= with_peers.goodput <= with_peers.ready
    assert outcomes[0].goodput < outcomes[2].goodput < outcomes[4].goodput


def test_the_benchmark_compares_rules_on_the_same_nodes_and_lists_what_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / node_replay.FOUR
    folder.mkdir(parents=True)
    for number, zone in enumerate(("us-east-1f", "us-west-2c")):
        samples = [4 if (sample + 9 * number) % 20 < 12 else 3 for sample in range(100)]
        text = json.dumps({"metadata": {"gap_seconds": 300}, "data": samples})
        (folder / f"{zone}_v100_1.json").write_text(text)
    result = node_replay.replayed(tmp_path)
    assert "of 16 nodes are left out" in capsys.readouterr().err
    assert result["goodput_vs_restart_all"] > 1.3, "a quarter of the nodes is missing for 40 % of the time"
    for row in result["rows"]:
        assert row["restart_all"] < row["survivors"] <= row["peers"] < row["ready"]
    cells = {cell["cell"] for cell in result["cells"]}
    assert {"as expected", "notice never", "joins at the next save"} < cells
    page = node_replay.section(result)
    assert f"{result['goodput_vs_restart_all']:.2f} times the steps" in page
    assert "| us-east-1f | 4 |" in page


def test_a_node_in_each_zone_is_one_or_none() -> None:
    together = node_replay.a_node_in_each("all", [trace(0, 4, 2), trace(1, 0, 3), trace(0, 0, 1)])
    assert (together.nodes, together.traces[0].samples) == (3, (1, 1, 3))
