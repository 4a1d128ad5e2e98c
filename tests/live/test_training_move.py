"""A training instance is interrupted and replaced: its volume keeps its content, its account is the bill."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.apart import apart, made_once
from tests.e2e.world import START
from tests.live.moves import PRICES, SECOND, STEPS, bridged, played, revised

INTERVAL = 20


@pytest.fixture(scope="module")
def seen() -> dict[str, Any]:
    return made_once(played)


def test_the_volume_follows_from_zone_to_zone_with_its_content(seen: dict[str, Any]) -> None:
    moves = seen["moves"]
    places = [(move["from"]["zone"][-1], move["to"]["zone"][-1]) for move in moves]
    assert places == [("a", "b"), ("b", "c"), ("c", "c")]
    assert [move["cause"] for move in moves] == ["notice", "loss", "notice"]
    for move in moves:
        assert move["content"]["equal"], move
        assert move["content"]["before"] == move["content"]["after"]
        assert move["content"]["files"] > 24
        assert sum(move["parts"].values()) == pytest.approx(move["seconds"])
        assert min(move["parts"].values()) >= 0
    assert len({move["content"]["after"] for move in moves}) == 3  # it is not the same content all the time


def test_another_zone_needs_a_snapshot_and_the_same_zone_none(seen: dict[str, Any]) -> None:
    *away, back = seen["moves"]
    for move in away:
        assert move["from"]["volume"] != move["to"]["volume"]
        assert move["parts"]["snapshot"] > 30  # what has changed since the last one, not all of it
        assert 200 < move["seconds"] < 1200
    assert back["from"]["volume"] == back["to"]["volume"]
    assert back["parts"]["snapshot"] == 0
    assert seen["home"][1] == back["to"]["volume"]


def test_with_a_notice_no_step_is_lost_and_without_one_at_most_an_interval(seen: dict[str, Any]) -> None:
    first, second, third = [move["steps_lost"] for move in seen["moves"]]
    assert first == third == 0
    assert 0 < second < INTERVAL


def test_the_job_is_not_ready_while_its_volume_moves(seen: dict[str, Any]) -> None:
    for move in seen["moves"]:
        released, running = move["at"] + move["parts"]["release"], move["at"] + move["seconds"]
        for span in seen["spans"]:
            begin = START + span["tick"] * 60
            if released <= begin < running - 60:
                assert span["ready"] == 0, (span, move)
    # A step takes half a minute.
    assert sum(span["ready"] * span["ticks"] for span in seen["spans"]) >= STEPS / 2


def test_a_finished_job_takes_its_group_down_and_leaves_one_volume(seen: dict[str, Any]) -> None:
    assert (seen["finished"], seen["desired"], seen["instances"]) == (seen["revision"], (0, 0), [])
    assert seen["home"][0] == "available"
    states = [snapshot["State"] for snapshot in seen["snapshots"]]
    assert "completed" in states
    assert len(states) <= 2
    assert seen["item"]["state"] == "done"
    assert seen["item"]["volume"] == seen["home"][1]
    assert "holder" not in seen["item"]


def test_dataset_and_training_equal_an_uninterrupted_run(seen: dict[str, Any]) -> None:
    assert seen["dataset"] == (24, True)
    assert json.loads(seen["checkpoint"]) == {"step": STEPS, "state": seen["uninterrupted"]}


def test_quiet_hours_are_not_played(seen: dict[str, Any]) -> None:
    assert seen["played"] < 110


def test_the_hours_are_those_of_the_bill_but_for_the_end_of_each_instance(seen: dict[str, Any]) -> None:
    hours = seen["account"]["total"]["seconds"] / 3600
    instances = len([move["steps_lost"] for move in seen["moves"]]) + 1
    assert 0 <= seen["spot_hours"] - hours <= instances / 60
    assert seen["on_demand_hours"] == 0
    assert [*seen["account"]["markets"]] == ["spot"]


def test_the_cost_is_at_the_spot_price_of_each_zone(seen: dict[str, Any]) -> None:
    pools = seen["account"]["pools"]
    expected = [pool["seconds"] / 3600 * price for pool, price in zip(pools, PRICES, strict=True)]
    assert [pool["cost_usd"] for pool in pools] == pytest.approx(expected, abs=1e-3)
    assert seen["account"]["total"]["assumed_seconds"] == 0
    assert seen["account"]["saved_usd"] > 0


def test_the_steps_done_again_are_those_that_the_simulation_lost(seen: dict[str, Any]) -> None:
    assert seen["account"]["repeated_steps"] == sum([move["steps_lost"] for move in seen["moves"]]) > 0
    assert seen["account"]["interruptions"] == len([move["steps_lost"] for move in seen["moves"]])
    assert seen["account"]["unreported_attempts"] == 0


def test_a_running_job_has_an_account_so_far(seen: dict[str, Any]) -> None:
    so_far, whole = seen["so_far"], seen["account"]
    assert not so_far["is_over"]
    assert whole["is_over"]
    assert 0 < so_far["total"]["seconds"] < whole["total"]["seconds"]
    assert so_far["elapsed_seconds"] < whole["elapsed_seconds"]


@pytest.mark.soak
def test_on_demand_trains_while_spot_is_unavailable_and_hands_the_job_back() -> None:
    bridge = apart(bridged)
    away, back = bridge["moves"]
    assert [away["cause"], back["cause"]] == ["notice", "hand-over"]
    assert away["to"]["volume"] == back["from"]["volume"]
    assert back["to"]["zone"] == "us-west-2b"
    # On-demand comes to the volume, which only spot's next zone makes follow.
    assert away["from"]["zone"] == away["to"]["zone"] == "us-west-2a"
    assert away["parts"]["snapshot"] == 0
    for move in (away, back):
        assert move["content"]["equal"]
        assert move["steps_lost"] == 0
    # Two instances of one job are paid together for one boot, and until the controller has seen its end.
    together = sum(s["ticks"] for s in bridge["spans"] if s["spot"] and s["on_demand"])
    assert 0 < together <= 3 + 2
    last = bridge["spans"][-1]
    assert (last["spot"], last["on_demand"], last["ready"]) == (1, 0, 1)


@pytest.mark.soak
def test_a_revision_that_is_asked_for_while_another_trains_runs_after_it() -> None:
    seen = apart(revised)
    [first] = seen["asked"]
    trained = [instance for kind, instance in seen["journal"] if kind == "running"]
    assert trained[0] == first
    assert len(set(trained)) == 2  # the first one switched itself off, and the group replaced it
    assert (seen["finished"], seen["item"]["revision"], seen["item"]["state"]) == (SECOND, SECOND, "done")
    assert (seen["desired"], seen["instances"]) == ((0, 0), [])


def test_an_archive_that_is_not_the_one_named_boots_nothing(seen: dict[str, Any]) -> None:
    assert "has SHA-256" in seen["tampered"]
    assert "s3://" in seen["tampered"]
