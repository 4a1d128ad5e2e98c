"""Names of policies, and which of them a stack may choose."""

from __future__ import annotations

import pytest

from lambdas.core.capacity import policies
from market.comparison.contenders import BASELINES, everyone, named


def test_all_holds_every_baseline_ours_and_the_frontier() -> None:
    names = [c.name for c in everyone()]
    assert len(set(names)) == len(names)
    assert {c.name for c in BASELINES} <= set(names)
    assert sum("@" in name for name in names) >= 5
    assert [c.name for c in everyone() if c.default] == [policies.DEFAULT]


def test_a_stack_cannot_choose_a_baseline() -> None:
    assert not {c.name for c in BASELINES} & set(policies.NAMES)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "spot-hedge",
            "policy 'spot-hedge' is unknown, allowed: all, expected-cost, ready-handover",
        ),
        ("spothedge@3", "only expected-cost takes a value"),
        ("expected-cost@much", "'much' given, a number ≥ 0 is needed after @"),
        ("expected-cost@-1", "'-1' given, a number ≥ 0"),
        ("expected-cost@nan", "'nan' given"),
        ("", "policy '' is unknown"),
    ],
)
def test_a_wrong_name_is_one_line(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message) as raised:
        named(text)
    assert "\n" not in str(raised.value)
