"""``gpu-spot jobs`` in the local cloud; the deployed controller follows its commands."""

from __future__ import annotations

from itertools import groupby
from typing import Any

import pytest

from tests.apart import apart
from tests.live.steered import RESUME_AT, STOP_AT, steered

pytestmark = pytest.mark.soak


@pytest.fixture(scope="module")
def seen() -> dict[str, Any]:
    return apart(steered)


def test_it_goes_through_the_states_in_order(seen: dict[str, Any]) -> None:
    assert [state for state, _ in groupby(seen["states"][tick] for tick in sorted(seen["states"]))] == [
        *("pending", "preparing", "running", "stopped"),
        *("waiting for a host", "moving", "running", "done"),
    ]


def test_a_stop_saves_and_lets_all_capacity_go_and_a_resume_brings_it_back(seen: dict[str, Any]) -> None:
    assert "saves a checkpoint and terminates; its volume is kept" in seen["said"]["stop"]
    assert seen["said"]["resume"].startswith("resumed resnet")
    assert seen["alive"][STOP_AT - 1] == 1
    assert not any(seen["alive"][tick] for tick in range(STOP_AT + 5, RESUME_AT + 1))
    before, after = seen["shown"]["timeline"]
    assert before["instance"] != after["instance"]
    assert (before["lost_seconds"], after["ending"]) == (0, "done")
    assert seen["shown"]["interruptions"] == 0
    assert not seen["alive"][max(seen["alive"])]  # at the end no instance runs
