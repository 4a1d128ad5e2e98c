"""Habits of public scripts: each row of ``docs/habits.md`` is what the page says, killed or refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from environments import environment, play

from test_habits_page import ROWS


def outcomes(folder: Path, module: str, kills: int) -> dict[str, Any]:
    options = ["--kills", str(kills), "--rows", module]
    return play(environment("torch"), "habits.player", folder / "habits", *options, seconds=590)


@pytest.mark.parametrize(
    ("module", "kills"),
    [
        ("rows", 2),
        ("more_rows", 2),
        pytest.param("trainer_rows", 3, marks=pytest.mark.soak),
        pytest.param("rows", 25, marks=pytest.mark.soak),
        pytest.param("more_rows", 25, marks=pytest.mark.soak),
    ],
)
def test_each_habit_becomes_what_the_page_says(tmp_path: Path, module: str, kills: int) -> None:
    found = outcomes(tmp_path, module, kills)
    rows = {row.title: row for row in ROWS if row.module == module}
    assert found.keys() == rows.keys()
    for title, row in rows.items():
        assert found[title]["outcome"] == row.verdict, (title, found[title])
        assert row.says in found[title]["line"], title
        assert row.verdict == "refused" or found[title]["kills"] >= 1, title
