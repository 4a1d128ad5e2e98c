"""A job without a data volume: it moves as fast as instances start, without lost data."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest

from research.rehearsed.research import day
from tests.apart import in_json


def three_hours() -> dict[str, Any]:
    return asdict(day("research-efs", 1, 3.0))


pytestmark = pytest.mark.soak


@pytest.fixture(scope="module")
def seen() -> dict[str, Any]:
    return in_json(three_hours)


def test_it_moves_with_its_checkpoints_whole_and_waits_for_no_volume(seen: dict[str, Any]) -> None:
    assert len(seen["parts"]) >= 2
    assert seen["intact"]
    assert {move["snapshot"] + move["attach"] for move in seen["parts"]} == {0.0}


def test_its_successor_has_booted_when_it_is_handed_over(seen: dict[str, Any]) -> None:
    waits = [m["wait"] for m, why in zip(seen["parts"], seen["causes"], strict=True) if why == "hand-over"]
    assert waits
    assert max(waits) < 30


def test_efs_traffic_is_counted(seen: dict[str, Any]) -> None:
    # Two GiB in each ten minutes of three hours, and two at each start but the first.
    assert 20 < seen["written_gib"] < 60
    assert seen["read_gib"] >= 2 * (len(seen["parts"]) - 1)
