"""The page's table of switches matches the code."""

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


def test_every_rule_that_may_be_doubted_stands_in_the_table_with_its_default() -> None:
    _, _, table = PAGE.partition("| rule | default |")
    rows = re.findall(r"^\| `(\w+)` \| (\S+) \| ", table, re.M)
    assert rows == [(name, str(getattr(Rules(), name))) for name in FAULTS]
