from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.group import config as group_config
from contracts.group.config import KINDS, GroupConfig

WHOLE = group_config.dumps(GroupConfig("mixed-asg", "primary", None, 0, 100, 8, {}, 0, False, "any"))
COUNTS = st.integers(0, 10_000)
CONFIGS = st.builds(
    GroupConfig,
    kind=st.sampled_from(KINDS),
    primary=st.text(min_size=1),
    fallback=st.none() | st.text(min_size=1),
    base=COUNTS,
    spot_percentage=st.integers(0, 100),
    maximum=COUNTS,
    slots=st.dictionaries(st.text(), COUNTS),
    drain_seconds=COUNTS,
    break_before_make=st.booleans(),
    policy=st.text(),
    knobs=st.dictionaries(st.text(), st.floats(allow_nan=False)),
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
    with pytest.raises(ValueError, match=r"a price > 0 is needed$"):
        group_config.parse(json.dumps(raw))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not JSON: "),
        ("[]", "'[]', a JSON object is needed"),
        ("{}", "no key 'kind'"),
        ('{"kind": "asg"}', "kind is 'asg', allowed: mixed-asg, spot-fleet"),
    ],
)
def test_what_cannot_be_read_is_named(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        group_config.parse(text)
