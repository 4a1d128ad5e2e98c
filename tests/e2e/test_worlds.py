"""The in-memory replay and the local cloud decide the same under unknown market conditions.

For days of it raise ``HOURS``, or call ``both`` and ``differences`` with traces of your own.
"""

from __future__ import annotations

import pytest

from tests.apart import apart
from tests.e2e.differential import both, differences
from tests.e2e.market_conditions import WORLDS
from tests.e2e.world import small

HOURS = 4
SEED = 18
"""Of the fitted model's first markets the one that in so few hours shows all of it in every world."""


@pytest.mark.soak
@pytest.mark.parametrize("name", WORLDS)
def test_the_same_decisions_in_a_world_of_doubt(name: str) -> None:
    doubt = WORLDS[name]
    acted, accounts = apart(both, "dev", small(4, **doubt.capacity), SEED, HOURS, doubt=doubt)
    assert list(differences(acted, accounts)) == []
    assert {what for what in doubt.happens if accounts[0].get(what)} == set(doubt.happens)
