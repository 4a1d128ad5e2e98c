"""The engine's diff as text: each resource with its changed inputs, most severe operations first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gpu_spot.markdown import short
from gpu_spot.review import boot_data
from gpu_spot.review.preview import EngineStep, Preview
from gpu_spot.review.value_diff import shown, value_differences
from gpu_spot.text import counted

_SIGNS: Final = {"delete": "-", "replace": "-", "create": "+", "import": "+"}
_OPERATION_ORDER: Final = ("delete", "replace", "update", "create")
_MAX_LENGTH: Final = 120


def steps(preview: Preview) -> list[str]:
    """Return a block of lines for each change, most severe operations first."""
    rank = {op: index for index, op in enumerate(_OPERATION_ORDER)}
    ordered = sorted(
        preview.changes,
        key=lambda change: (rank.get(change.op, len(_OPERATION_ORDER)), change.type, change.name),
    )
    return ["\n".join(_lines(step)) for step in ordered]


def _lines(step: EngineStep) -> Iterator[str]:
    yield f"{_SIGNS.get(step.op, '!')} {step.op} {step.type} {short(step.name, _MAX_LENGTH)}"
    if step.op not in ("update", "replace"):
        return
    for key in step.changed:
        forces = " (forces a replacement)" if key in step.forcing else ""
        if key == "userData":
            differences = boot_data.describe_difference(
                str(step.old.get(key, "")), str(step.new.get(key, ""))
            )
            yield f"    boot data{forces}: {counted(len(differences), 'difference')}, described above"
            continue
        for path, old_value, new_value in value_differences(step.old.get(key), step.new.get(key), key):
            yield f"-   {path}{forces}: {shown(old_value, _MAX_LENGTH)}"
            yield f"+   {path}: {shown(new_value, _MAX_LENGTH)}"
