"""What a job's budget may be."""

from __future__ import annotations

from typing import Any

import pytest

from infra.settings import SettingsError
from tests.infra.test_refusals import ONE, settings, training

BLOCK = {"reservation": "cr-0123456789abcdef0", "instanceType": "g6e.48xlarge", "zone": "us-west-2b"}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"budget": 0}, "at least 0.01"),
        ({"budget": "much"}, "much"),
        (
            {"budget": 5, "capacity": ONE | {"instanceTypes": ["g5.xlarge", "p5e.48xlarge"]}},
            "p5e.48xlarge in us-west-2 has no known price, allowed: types with a price in the region",
        ),
        ({"budget": 5, "capacityBlock": BLOCK}, "with capacityBlock, allowed: one of them"),
    ],
)
def test_a_budget_without_known_prices_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingsError, match=r"training\[0\]\.budget") as caught:
        settings("dev", training(**changes))
    assert said in str(caught.value)


def test_each_experiment_has_a_budget_of_its_own() -> None:
    several = settings("dev", training(budget=5, matrix={"SEED": [1, 2, 3]}))
    assert [job.budget for job in several.jobs] == [5, 5, 5]
