"""Experiments that share a group all finish, whichever instance is lost."""

from __future__ import annotations

from typing import Any

import pytest

from tests.apart import in_json
from tests.live import sharing

pytestmark = pytest.mark.soak


@pytest.fixture(scope="module")
def seen() -> dict[str, Any]:
    return in_json(sharing.played)


def test_all_come_to_their_end_and_the_group_goes(seen: dict[str, Any]) -> None:
    assert seen["states"] == ["done"] * 21
    assert seen["group"]["state"] == "done"
    assert seen["group"]["why"] == "21 of 21 experiments done, 0 running"
    assert seen["finished"] == seen["group"]["revision"]
    assert (seen["most"], seen["alive"]) == (2, 0)


def test_an_experiment_of_a_lost_instance_resumes_from_its_checkpoint(seen: dict[str, Any]) -> None:
    # Two are lost without notice; nothing else is taken twice.
    assert seen["endings"] == [["loss", "done"]] * 2
    assert 21 <= len(seen["first_steps"]) <= 21 + 2
    assert max(seen["first_steps"]) > 0


def test_they_are_watched_as_jobs(seen: dict[str, Any]) -> None:
    assert {"pending", "running", "done", "waiting for a host"} == {
        one for phase in seen["phases"] for one in phase
    }
    assert max(phase.get("running", 0) for phase in seen["phases"]) == 2
    assert not seen["twice"]
