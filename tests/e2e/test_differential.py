"""The replay in memory and the local cloud are one market: the same controller decides the same in both.

Everything between them is compared: program, archives, EventBridge, SQS, AWS's APIs and the adapters.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from lambdas.core.capacity import policies
from tests.apart import apart
from tests.e2e.differential import Account, Actions, both, differences
from tests.e2e.world import small

HOURS = 6
SEED = 24
"""Of the fitted model's first markets the one that in so few hours makes the controller act most."""
SIZES_HOURS = 4
SIZES_SEED = 6
"""One that shows in so few hours what the test of two sizes asks for; for days of it raise both hours."""


def same(acted: list[Actions], accounts: list[Account], apart_from: str = "") -> Account:
    """Hold both fleets to the same actions and the same account; return that."""
    assert len(acted[0]) > 12
    assert list(differences(acted, accounts, apart_from)) == []
    return accounts[0]


@pytest.mark.soak
@pytest.mark.parametrize("stack", ["dev", "fleet"])
def test_the_same_decisions_with_types_of_two_sizes(stack: str) -> None:
    """AWS counts GPUs, the controller reads its counts, and the replay has them from the deployment."""
    sizes = {
        "unit": "gpus",
        "max": 24,
        "instanceTypes": ["g6.12xlarge", "g6.xlarge"],
        "fallback.warmInstances": 0,
    }
    # A hook keeps whom the primary group releases for a look longer, and its pool seems to live so long.
    account = same(*apart(both, stack, small(8, **sizes), SIZES_SEED, SIZES_HOURS), apart_from=" expected")
    assert account["interruption"] > 0
    assert account["launch-on-demand"] > 0
    assert {name.partition("@")[0] for name in account if "@" in name} == {"g6.12xlarge", "g6.xlarge"}
    # Instances serve in fours, and no fewer than asked for are held: AWS launches beyond, not below.
    assert account["availability"] > 0.99


@pytest.mark.parametrize(
    ("stack", "policy"),
    [
        ("dev", policies.DEFAULT),
        *(
            pytest.param("dev", name, marks=pytest.mark.soak)
            for name in policies.NAMES
            if name != policies.DEFAULT
        ),
        pytest.param("fleet", policies.DEFAULT, marks=pytest.mark.soak),
    ],
)
def test_the_same_decisions_tick_by_tick(stack: str, policy: str, traces: Path | None) -> None:
    week = traces / "availability" / "1-node" / "aws-02-15-2023" if traces else None
    files = sorted(week.glob("us-west-2*.json")) if week else []
    in_memory = same(*apart(both, stack, small(4, **{"fallback.policy": policy}), SEED, HOURS, files))
    assert in_memory["interruption"] > 0
    assert in_memory["launch-on-demand"] > 0
    assert in_memory["recommendation"] > 0
    assert in_memory["warm-refusal"] > 0
