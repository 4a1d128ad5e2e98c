"""The table of consequences matches docs/operations.md, "What is replaced"."""

from __future__ import annotations

import re

import pytest

from gpu_spot.review.effects.consequences import CONSEQUENCES, TYPES, Severity
from gpu_spot.review.effects.parameters import _undetermined
from gpu_spot.review.effects.workers import assess_preview
from gpu_spot.review.preview import EngineStep, Preview
from tests.infra.declared import ROOT
from tests.infra.test_replacements import FORCES_NEW

PAGE = (ROOT / "docs" / "operations.md").read_text("utf-8").split("## What is replaced")[1].split("\n## ")[0]
ROWS = [re.findall(r"`([A-Z]\w+)\.(\w+)`", row) for row in PAGE.splitlines() if row.startswith("| ")]
ENDING = [row for row in PAGE.splitlines() if "workers end" in row and re.search(r"`[A-Z]\w+\.\w+`", row)]
BY_ROW = sorted({pair for row in ROWS for pair in row})


def replaced(kind: str, key: str) -> EngineStep:
    type_ = TYPES.get(kind, f"aws:x/y:{kind}")
    return EngineStep("replace", type_, "gpu-spot-dev-it", {key: 1}, {key: 2}, (key,), (key,))


def test_the_table_has_exactly_the_replacements_of_the_page() -> None:
    table = {(one.kind, key) for one in CONSEQUENCES if one.op == "replace" for key in one.inputs}
    assert table == set(BY_ROW)


@pytest.mark.parametrize(("kind", "key"), BY_ROW)
def test_severity_matches_the_page(kind: str, key: str) -> None:
    worst = assess_preview(Preview("dev", (replaced(kind, key),))).worst
    ends = any(f"`{kind}.{key}`" in row for row in ENDING)
    lost = any(
        f"`{kind}.{key}`" in row
        and ("lost**" in row or "cannot be changed**" in row or "second stack" in row)
        for row in PAGE.splitlines()
    )
    assert worst is Severity.LOST if lost else (worst is Severity.ENDS) == ends


def test_the_effect_of_an_unlisted_replacement_is_unknown() -> None:
    unknown = assess_preview(Preview("dev", (replaced("Thing", "engine"),)))
    assert unknown.worst is Severity.UNKNOWN
    assert unknown.effects[0].words == "may end workers: not known"
    assert "is replaced because of engine" in unknown.effects[0].details[0]
    kinds = {one.kind for one in CONSEQUENCES if one.op == "replace"}
    assert kinds - {"Cluster", "NatGateway"} <= FORCES_NEW.keys()


@pytest.mark.parametrize(
    ("side", "words"),
    [
        ("primary", "of the primary group are terminated"),
        ("fallback", "all On-Demand workers are terminated at once"),
    ],
)
def test_a_deleted_group_ends_its_own_role(side: str, words: str) -> None:
    tags = [{"key": "gpu-spot:group", "value": "web"}, {"key": "gpu-spot:side", "value": side}]
    deleted = EngineStep("delete", "aws:autoscaling/group:Group", "g", {"tags": tags})
    [effect] = assess_preview(Preview("dev", (deleted,))).effects
    assert (effect.severity, effect.group) == (Severity.ENDS, "web")
    assert words in effect.words


@pytest.mark.parametrize(
    ("before", "after", "is_lower"),
    [
        (None, {"dollars": 16.0}, False),  # as many as the maximum
        (None, {"dollars": 15.9}, True),  # 7.95 slots
        (None, {"onDemandDollars": 4.0}, True),
        ({"dollars": 4.0}, None, False),
        ({"dollars": 4.0}, {"dollars": 6.0}, False),
        ({"dollars": 6.0}, {"dollars": 4.0}, True),
        ({"dollars": 6.0}, {"dollars": 6.0, "slotPrice": 3.0}, True),
    ],
)
def test_an_hourly_budget_that_allows_fewer_slots_may_end_workers(
    before: dict[str, float] | None, after: dict[str, float] | None, is_lower: bool
) -> None:
    old, new = (
        {"max": 8, "hourlyBudget": budget and {"slotPrice": 2.0, **budget}} for budget in (before, after)
    )
    assert list(_undetermined(old, new)) == ["hourlyBudget"] * is_lower
