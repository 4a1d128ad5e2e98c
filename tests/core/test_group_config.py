"""What the program writes about a group and how large its warm pool is."""

from __future__ import annotations

import json
import math
import re
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.group import config as group_config
from contracts.group.config import GroupConfig, GroupKind, PolicyChoice
from contracts.group.warm_pool import MIN_SHORTAGE_COST, on_demand_share, size

WHOLE = group_config.dumps(
    GroupConfig(
        kind="mixed-asg",
        primary="primary",
        base=0,
        spot_percentage=100,
        maximum=8,
        slots={},
        drain_seconds=0,
        policy=PolicyChoice("any"),
    )
)
COUNTS = st.integers(0, 10_000)
CONFIGS = st.builds(
    GroupConfig,
    kind=st.sampled_from(get_args(GroupKind)),
    primary=st.text(min_size=1),
    fallback=st.none() | st.text(min_size=1),
    base=COUNTS,
    spot_percentage=st.integers(0, 100),
    maximum=COUNTS,
    slots=st.dictionaries(st.text(), COUNTS),
    drain_seconds=COUNTS,
    break_before_make=st.booleans(),
    policy=st.builds(PolicyChoice, st.text(), st.dictionaries(st.text(), st.floats(allow_nan=False))),
    run=st.text(),
    reserved=COUNTS,
    block=st.text(),
    zones=st.lists(st.text()).map(tuple),
    on_demand_prices=st.dictionaries(st.text(), st.floats(0, 1000, exclude_min=True)),
)


@given(CONFIGS)
def test_what_is_written_is_read_again(config: GroupConfig) -> None:
    assert group_config.parse(group_config.dumps(config)) == config


@pytest.mark.parametrize("price", [0, -1, "Infinity", "NaN"])
def test_a_price_is_a_number_above_zero(price: object) -> None:
    raw = {**json.loads(WHOLE), "onDemandPrices": {"g5.xlarge": price}}
    with pytest.raises(
        ValueError, match=r"^onDemandPrices\.g5\.xlarge: .*(; allowed: above 0| is not of type float)$"
    ):
        group_config.parse(json.dumps(raw))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not JSON: "),
        ("[]", "[] is not an object"),
        ("{}", "kind: missing"),
        ('{"kind": "asg"}', "kind: 'asg'; allowed: 'mixed-asg', 'spot-fleet'"),
    ],
)
def test_what_cannot_be_read_is_named(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        group_config.parse(text)


costs = st.floats(0, 1e4) | st.just(math.inf)


@given(st.integers(0, 64), costs, st.integers(0, 64), st.integers(0, 100))
def test_it_is_the_spot_share_or_nothing(target: int, cost: float, base: int, percentage: int) -> None:
    base = min(base, target)
    spot = target - on_demand_share(target, base, percentage)
    assert size(target, base, percentage, cost) == (spot if cost >= MIN_SHORTAGE_COST else 0)


@pytest.mark.parametrize(("cost", "expected"), [(0, 0), (1, 0), (2, 12), (100, 12), (math.inf, 12)])
def test_nothing_where_shortage_is_cheap_and_all_that_spot_can_lose_where_it_is_dear(
    cost: float, expected: int
) -> None:
    assert size(16, 4, 100, cost) == expected
