"""The README's tables are what the code says."""

from __future__ import annotations

from pathlib import Path

import pulumi_on_moto
from pulumi_on_moto.fixes.everything import FIXES

README = (Path(__file__).parents[1] / "README.md").read_text("utf-8")


def test_every_fix_of_moto_stands_in_the_table() -> None:
    rows = [f"| {fix.name} | {fix.moto} | {fix.aws} | {fix.upstream_issue} |" for fix in FIXES]
    assert "\n".join(rows) in README, "the table shall be:\n" + "\n".join(rows)


def test_every_name_of_the_surface_is_mentioned() -> None:
    assert not [name for name in pulumi_on_moto.__all__ if f"`{name}" not in README]
