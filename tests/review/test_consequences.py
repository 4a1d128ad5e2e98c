"""The table of consequences is the page's: docs/operations.md, "What is replaced"."""

from __future__ import annotations

import re

import pytest

from gpu_spot.review.consequences import CONSEQUENCES, Severity
from gpu_spot.review.preview import EngineStep, Preview
from gpu_spot.review.workers import judge
from tests.infra.declared import ROOT
from tests.infra.test_replacements import FORCES_NEW

PAGE = (ROOT / "docs" / "operations.md").read_text("utf-8").split("## What is replaced")[1].split("\n## ")[0]
ROWS = [re.findall(r"`([A-Z]\w+)\.(\w+)`", row) for row in PAGE.splitlines() if row.startswith("| ")]
ENDING = [row for row in PAGE.splitlines() if "workers end" in row and re.search(r"`[A-Z]\w+\.\w+`", row)]
BY_ROW = sorted({pair for row in ROWS for pair in row})


def replaced(kind: str, key: str) -> EngineStep:
    return EngineStep("replace", f"aws:x/y:{kind}", "gpu-spot-dev-it", {key: 1}, {key: 2}, (key,), (key,))


def test_every_replacement_of_the_page_has_its_words_and_there_are_no_others() -> None:
    table = {(one.kind, key) for one in CONSEQUENCES if one.op == "replace" for key in one.inputs}
    assert table == set(BY_ROW)


@pytest.mark.parametrize(("kind", "key"), BY_ROW)
def test_where_the_page_says_that_workers_end_the_comment_does(kind: str, key: str) -> None:
    worst = judge(Preview("dev", (replaced(kind, key),))).worst
    ends = any(f"`{kind}.{key}`" in row for row in ENDING)
    lost = any(
        f"`{kind}.{key}`" in row
        and ("lost**" in row or "cannot be changed**" in row or "second stack" in row)
        for row in PAGE.splitlines()
    )
    assert worst is Severity.LOST if lost else (worst is Severity.ENDS) == ends


def test_a_replacement_that_the_page_does_not_know_is_told_as_such() -> None:
    unknown = judge(Preview("dev", (replaced("Cluster", "engine"),)))
    assert unknown.worst is Severity.WATCH
    assert "because of engine: what that means for workers is not known here" in unknown.effects[0].words
    kinds = {one.kind for one in CONSEQUENCES if one.op == "replace"}
    assert kinds - {"NatGateway"} <= FORCES_NEW.keys()


@pytest.mark.parametrize(
    ("side", "words"),
    [("primary", "of the primary group end"), ("fallback", "every on-demand worker ends at once")],
)
def test_a_deleted_group_ends_its_own_side(side: str, words: str) -> None:
    tags = [{"key": "gpu-spot:group", "value": "web"}, {"key": "gpu-spot:side", "value": side}]
    deleted = EngineStep("delete", "aws:autoscaling/group:Group", "g", {"tags": tags})
    [effect] = judge(Preview("dev", (deleted,))).effects
    assert (effect.severity, effect.group) == (Severity.ENDS, "web")
    assert words in effect.words
