"""Which checkpoints stay beside the newest ones: the best one, those with a name, one in so many steps."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from spot_training.errors import SpotTrainingError

_MODES: Final = ("min", "max")
_PIN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


@dataclass(frozen=True)
class Keep:
    """Why a checkpoint stays beside the newest ones: its metric, if that is the best so far, or names."""

    metric: float | None = None
    mode: str = "min"
    """``min``: the lowest metric is the best; ``max``: the highest."""
    pins: Sequence[str] = ()
    """Names; a name that another checkpoint has moves to this one."""

    def __post_init__(self) -> None:
        if self.mode not in _MODES:
            raise SpotTrainingError(f"mode must be {' or '.join(_MODES)}, not {self.mode!r}")
        for pin in self.pins:
            if not _PIN.fullmatch(pin):
                raise SpotTrainingError(f"a pin must have 1 to 64 letters, digits and _.-, not {pin!r}")

    def is_better(self, than: BestCheckpoint | Keep | None) -> bool:
        """Return whether the metric is better; of two equal ones the earlier is, and NaN or inf never is.

        Metrics of another mode cannot be compared: the new one counts as better.
        """
        if self.metric is None or not math.isfinite(self.metric):
            return False
        if than is None or than.metric is None or than.mode != self.mode:
            return True
        return self.metric < than.metric if self.mode == "min" else self.metric > than.metric


@dataclass(frozen=True)
class BestCheckpoint:
    """The checkpoint with the best metric."""

    step: int
    metric: float
    mode: str


@dataclass(frozen=True)
class Retained:
    """The checkpoints of one history that stay, by step; each checkpoint stores those up to its step.

    So after an interruption the history that continues knows its own, and none of the steps that were lost.
    """

    best: BestCheckpoint | None = None
    pins: Mapping[str, int] = field(default_factory=dict)
    every: tuple[int, ...] = ()
    """The first checkpoint after each so many steps."""

    @property
    def steps(self) -> frozenset[int]:
        """The steps of all of them."""
        best = () if self.best is None else (self.best.step,)
        return frozenset((*best, *self.pins.values(), *self.every))

    def after(self, step: int, keep: Keep, *, before: int | None, every: int | None) -> Retained:
        """Return those after a checkpoint of ``step``; ``before``: the history's last checkpoint.

        ``every``: a checkpoint stays if a multiple of so many steps lies between it and the last one.
        """
        best = self.best
        if keep.metric is not None and keep.is_better(best):
            best = BestCheckpoint(step, keep.metric, keep.mode)
        milestones = self.every
        if every and step // every > (before or 0) // every and step not in milestones:
            milestones += (step,)
        return Retained(best, {**self.pins, **dict.fromkeys(keep.pins, step)}, milestones)

    def only(self, steps: Collection[int]) -> Retained:
        """Return those that are in ``steps``: the others were removed from a full disk."""
        return Retained(
            self.best if self.best is not None and self.best.step in steps else None,
            {pin: step for pin, step in self.pins.items() if step in steps},
            tuple(step for step in self.every if step in steps),
        )

    def reasons(self, step: int) -> list[str]:
        """Return why a checkpoint stays, for people; the last reason is the strongest."""
        result = ["every so many steps"] if step in self.every else []
        if self.best is not None and self.best.step == step:
            result.append(f"best, {self.best.mode} {self.best.metric:.6g}")
        return result + [f"pin {pin}" for pin, pinned in sorted(self.pins.items()) if pinned == step]

    def strength(self, step: int) -> int:
        """Return what goes first from a full disk: 0 what need not stay, then 1, the best 2, pins 3."""
        if step in self.pins.values():
            return 3
        return 2 if self.best is not None and self.best.step == step else int(step in self.every)

    def document(self) -> dict[str, Any]:
        """Return the JSON that a checkpoint stores; empty if there are none."""
        best = asdict(self.best) if self.best is not None else None
        result = {"best": best, "pins": dict(self.pins), "every": list(self.every)}
        return {key: value for key, value in result.items() if value}


def parse_retained(document: Any) -> Retained | None:
    """Return what ``document`` wrote; None if this version does not understand it."""
    try:
        best = document.get("best")
        if best is not None:
            best = BestCheckpoint(int(best["step"]), float(best["metric"]), str(best["mode"]))
        pins = {str(pin): int(step) for pin, step in document.get("pins", {}).items()}
        return Retained(best, pins, tuple(int(step) for step in document.get("every", ())))
    except (AttributeError, KeyError, TypeError, ValueError):
        return None


def merge(first: Keep | None, second: Keep) -> Keep:
    """Return both requests of one state; the second metric counts."""
    if first is None:
        return second
    base = first if second.metric is None else second
    return replace(base, pins=(*first.pins, *second.pins))
