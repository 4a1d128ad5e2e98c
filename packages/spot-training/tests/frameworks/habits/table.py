"""Habits of public training scripts, and what becomes of them: a row of the page, and a test.

Each is written for this table after the named script, with its habit alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from frameworks.habits.player import Body
from spot_training import Interval

Verdict = Literal["same", "said", "refused"]
"""``said``: the script goes on, and a line names what is not resumed."""
EPOCHS = 3
INTERVAL = Interval(max_seconds=0.01)


@dataclass(frozen=True)
class Row:
    """A habit, where it is from, and what becomes of it."""

    title: str
    verdict: Verdict
    source: str
    body: Body
    says: str = ""


ROWS: list[Row] = []


def habit(title: str, verdict: Verdict, source: str, says: str = "") -> Callable[[Body], Body]:
    """Add a row; ``says``: a part of the line."""

    def add(body: Body) -> Body:
        ROWS.append(Row(title, verdict, source, body, says))
        return body

    return add
