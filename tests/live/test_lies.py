"""What one stolen credential does to a group: with the registry's rows bound to their writer, and without."""

from __future__ import annotations

from typing import Any

import pytest

from tests.apart import apart
from tests.live.lies import HOSTS, SIZE, played

pytestmark = pytest.mark.soak


@pytest.fixture(scope="module")
def of_instance() -> dict[str, Any]:
    return apart(played, "instance", is_bound=True)


@pytest.fixture(scope="module")
def of_host() -> dict[str, Any]:
    return apart(played, "host", is_bound=True)


def test_an_instance_cannot_speak_for_its_neighbours(of_instance: dict[str, Any]) -> None:
    assert (of_instance["on_demand"], of_instance["spot"]) == (0, SIZE)
    assert of_instance["refused"] > 0
    # The previous agent's partition is open to it, and believed of no instance with the present agent.
    assert of_instance["written"] == ["inference"]


def test_without_the_bound_an_instance_has_on_demand_bought_for_its_neighbours() -> None:
    assert apart(played, "instance", is_bound=False)["on_demand"] >= SIZE - 1


def test_an_on_premises_host_counts_for_its_own_slots_only(of_host: dict[str, Any]) -> None:
    assert of_host["spot"] + of_host["on_demand"] == SIZE - 1
    assert of_host["written"] == [f"inference@on-premises#{HOSTS[0]}"]


def test_without_the_bound_an_on_premises_host_leaves_next_to_nothing_on_aws() -> None:
    assert apart(played, "host", is_bound=False)["spot"] <= 1
