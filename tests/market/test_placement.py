"""Which capacity pool a trace stands for."""

from __future__ import annotations

import pytest

from lambdas.core.model import Pool
from market.supply.placement import assign, named
from market.supply.trace import TraceError

ZONES = ("us-west-2a", "us-west-2b")


def test_a_trace_stands_in_its_own_zone_and_others_fill_up() -> None:
    names = ["us-east-1f_v100_1", "us-west-2b_v100_1", "us-west-2a_v100_1"]
    assert assign(names, ZONES, ("g5.xlarge", "g6.xlarge")) == (
        Pool("g6.xlarge", "us-west-2a"),
        Pool("g5.xlarge", "us-west-2b"),
        Pool("g5.xlarge", "us-west-2a"),
    )


def test_two_traces_of_one_zone_take_two_instance_types() -> None:
    pools = assign(["us-west-2a_v100_1", "us-west-2a_v100_8"], ZONES, ("g5.xlarge", "g6.xlarge"))
    assert pools == (Pool("g5.xlarge", "us-west-2a"), Pool("g6.xlarge", "us-west-2a"))


def test_more_traces_than_pools_are_refused() -> None:
    with pytest.raises(TraceError, match="3 traces, but the group has only 2 capacity pools"):
        assign(["a", "b", "c"], ZONES, ("g5.xlarge",))


def test_a_name_says_zone_and_type() -> None:
    assert named(["us-west-2a_v100_8", "zone-1"]) == (Pool("v100_8", "us-west-2a"), Pool("any", "zone-1"))
