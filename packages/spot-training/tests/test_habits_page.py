"""The page of habits is made of the rows that are played: ``python tests/test_habits_page.py`` writes it."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import NamedTuple

PACKAGE = Path(__file__).resolve().parents[1]
PAGE = PACKAGE / "docs" / "habits.md"
HABITS = Path(__file__).parent / "frameworks" / "habits"
MODULES = {**dict.fromkeys(("batches", "parts", "data", "script", "trainers"), "torch"), "keras_fit": "keras"}
"""What plays rows, and its environment."""
VERDICTS = {
    "same": "same to the bit",
    "said": "goes on, with a line that says what is lost",
    "refused": "refused with a line",
}
BEGIN = """# Habits of training scripts

What becomes of them: *same to the bit* as without an interruption, or *refused with a line* that names the
remedy, before the first step, at the first save, or, where only a restart can know, before its first step. A
row is played by `tests/frameworks/test_habits.py`; `python tests/test_habits_page.py` writes this page.

| habit | | as in |
|---|---|---|
"""
END = """
Not tried: 8-bit optimizers, DeepSpeed, a loader prepared by accelerate.
`spot-training rehearse` tries your script. Not seen: what `functools.lru_cache` has drawn; a collator that
draws (`Trainer` draws one batch ahead); objects that callbacks of `Trainer` hold; private attributes of
Lightning's modules and callbacks; generators, closures and lists of NumPy's numbers in Keras callbacks; a
variable that equals `loop.step` until a restart. A notice at the step of an evaluation of `Trainer` skips it,
with a line.

Measured on the rows with `Loop` (two kills each, `player --audit off`): without the audit 21 end with another
result. With it 20 of these are named in the first start, without a kill; a random network without a seed is
named at the restart.
"""


class Row(NamedTuple):
    module: str
    title: str
    verdict: str
    source: str
    says: str = ""


def rows() -> list[Row]:
    """Return the arguments of ``habit``, without importing a framework."""
    result = []
    for name in MODULES:
        tree = ast.parse((HABITS / f"{name}.py").read_text("utf-8"))
        for function in (node for node in tree.body if isinstance(node, ast.FunctionDef)):
            for call in function.decorator_list:
                if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "habit":
                    result.append(Row(name, *(ast.literal_eval(argument) for argument in call.args)))
    return result


ROWS = rows()


def page() -> str:
    lines = [f"| {row.title} | {VERDICTS[row.verdict]} | {row.source} |\n" for row in ROWS]
    return BEGIN + "".join(lines) + END


def test_the_page_has_the_rows_that_are_played() -> None:
    assert len({row.title for row in ROWS}) == len(ROWS) >= 40
    assert PAGE.read_text("utf-8") == page()


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
