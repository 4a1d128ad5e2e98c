"""Habits of public scripts: a row of ``docs/habits.md`` is what the page says, killed or refused.

Each second row is killed once; all, 25 times each, with ``make soak``.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from environments import environment, play

from test_habits_page import MODULES, ROWS

SLOW = ("trainers", "keras_fit")
SEEN = {"same": ("same",), "refused": ("refused",), "said": ("same", "other result")}
"""By what the page says: what playing may find."""


@pytest.mark.parametrize(
    ("module", "kills"),
    [
        pytest.param(module, kills, marks=[pytest.mark.soak] if kills > 1 or module in SLOW else [])
        for kills in (1, 25)
        for module in MODULES
    ],
)
def test_each_habit_becomes_what_the_page_says(tmp_path: Path, module: str, kills: int) -> None:
    rows = {
        row.title: row for row in [row for row in ROWS if row.module == module][:: 2 if kills == 1 else 1]
    }
    options = ["--kills", str(kills), "--rows", module, "--only", *rows]
    found = play(
        environment(MODULES[module]),
        "habits.player",
        tmp_path / "habits",
        *options,
        seconds=590 if kills == 1 else 3000,
    )
    assert found.keys() == rows.keys()
    for title, row in rows.items():
        assert found[title]["outcome"] in SEEN[row.verdict], (title, found[title])
        assert row.says in found[title]["line"], (title, found[title])
        assert row.verdict == "refused" or found[title]["kills"] >= 1, title
