"""The engine's diff as text for a fold: a resource with its changed inputs, the gravest operations first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gpu_spot.review import boot_data
from gpu_spot.review.leaves import leaves, shown
from gpu_spot.review.preview import EngineStep, Preview
from gpu_spot.review.text import plural, short

_SIGNS: Final = {"delete": "-", "replace": "-", "create": "+", "import": "+"}
_TURN: Final = ("delete", "replace", "update", "create")
_MOST: Final = 120


def steps(preview: Preview) -> list[str]:
    """Return a block of lines for each change, the gravest operations first."""
    turn = {op: place for place, op in enumerate(_TURN)}
    ordered = sorted(preview.changes, key=lambda one: (turn.get(one.op, len(_TURN)), one.type, one.name))
    return ["\n".join(_lines(step)) for step in ordered]


def _lines(step: EngineStep) -> Iterator[str]:
    yield f"{_SIGNS.get(step.op, '!')} {step.op} {step.type} {short(step.name, _MOST)}"
    if step.op not in ("update", "replace"):
        return
    for key in step.changed:
        forces = " (forces a replacement)" if key in step.forcing else ""
        if key == "userData":
            told = boot_data.told(str(step.old.get(key, "")), str(step.new.get(key, "")))
            yield f"    boot data{forces}: {plural(len(told), 'difference')}, in words above"
            continue
        for path, one, other in leaves(step.old.get(key), step.new.get(key), key):
            yield f"-   {path}{forces}: {shown(one, _MOST)}"
            yield f"+   {path}: {shown(other, _MOST)}"
