"""What the program writes about a group and how large its warm pool is."""

from __future__ import annotations

import json
import re
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.group import config as group_config
from contracts.group.config import GroupConfig, GroupKind, PolicyChoice

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
        ValueError,
        match=r"^onDemandPrices\.g5\.xlarge must be (above 0|of type float|a finite number), not .*$",
    ):
        group_config.parse(json.dumps(raw))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "the value is not JSON: "),
        ("[]", "the value must be an object, not []"),
        ("{}", "kind is missing"),
        ('{"kind": "asg"}', "kind must be 'mixed-asg' or 'spot-fleet', not 'asg'"),
    ],
)
def test_what_cannot_be_read_is_named(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        group_config.parse(text)
