"""The effect of one change or of several similar ones, and how effects of unknown changes are worded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from gpu_spot.markdown import code, label
from gpu_spot.review.effects.consequences import Severity
from gpu_spot.review.preview import EngineStep
from gpu_spot.text import counted

MAY_END: Final = "may end workers: not known"


@dataclass(frozen=True)
class Effect:
    """The effect of one or several similar changes. ``group`` is empty if it concerns the whole stack.

    ``count`` is the number of workers that end, None if unknown or none; with ``ends_all`` these
    are all workers of the group. ``direction`` is that of another axis (``axes.py``).
    """

    severity: Severity
    group: str
    words: str
    details: tuple[str, ...] = ()
    count: int | None = None
    ends_all: bool = False
    axis: str = "workers"
    direction: str = ""


def may_end(step: EngineStep, group: str, reason: str = "") -> Effect:
    """Return the effect of a change about which nothing is known."""
    return Effect(Severity.UNKNOWN, group, MAY_END, (f"{named(step)} {reason or changed_words(step)}",))


def changed_words(step: EngineStep) -> str:
    """Return what happens to a resource, in words."""
    by = ", ".join(map(label, step.forcing)) or "an input that the engine does not report"
    verbs = {
        "create": "is created",
        "import": "is imported",
        "delete": "is deleted",
        "replace": f"is replaced because of {by}"
        + (", the old one is deleted first" if step.deleted_first else ""),
        "update": f"changes ({', '.join(map(label, step.changed)) or 'the engine does not say in what'})",
    }
    return verbs.get(step.op, f"has the operation {code(step.op)}")


def named(step: EngineStep) -> str:
    """Return kind and name of a resource."""
    return f"{label(step.kind)} {code(step.name)}"


def workers(number: int | None) -> str:
    """Return a number of workers in words; None are all of a group."""
    return "all workers" if number is None else counted(number, "worker")
