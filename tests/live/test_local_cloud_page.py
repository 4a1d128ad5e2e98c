"""Switches of AWS's faults are on the page, rules of a replay in their class."""

from __future__ import annotations

import re
from pathlib import Path

from gpu_spot.commands.market.replay import FAULTS
from market.rules import Rules
from rehearsal.cloud.fault_injection import FaultInjection

PAGE = (Path(__file__).parents[2] / "docs/local-cloud.md").read_text("utf-8")


def test_every_switch_stands_in_the_table_with_its_default() -> None:
    _, _, rest = PAGE.partition("| switch | default |")
    table, _, _ = rest.partition("\n## ")
    rows = re.findall(r"^\| `(\w+)` \| (\S+) \| ", table, re.M)
    assert rows == [(name, str(getattr(FaultInjection(), name)).lower()) for name in FaultInjection.__slots__]


def test_every_rule_that_may_be_doubted_is_described() -> None:
    assert [name for name in FAULTS if f"``{name}``" not in (Rules.__doc__ or "")] == []
