"""Which checkpoints stay: the newest, the best, those with a name, one in so many steps."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from spot_training.errors import SpotTrainingError, log
from spot_training.storage.manifest import Checkpoint, name_of, parse, step_of
from spot_training.storage.store import Store

_MODES: Final = ("min", "max")
_PIN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_MARGIN: Final = 1.05
"""A save needs this times the previous one's size: directories, the manifest, a log that has grown."""


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
        return {key: value for key, value in asdict(self).items() if value}


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


class CheckpointRetention:
    """Deletes what need not stay in ``store``; for rank 0, which alone lists and deletes.

    The newest ``keep`` checkpoints stay, and what they or the present history refer to: so also where the
    newest is damaged and the one before is restored. A checkpoint whose manifest cannot be read is not
    deleted, and while it is among the newest, nothing is: what it refers to is not known. Where the next one
    does not fit, older ones are removed all the same, never the newest.
    """

    def __init__(self, store: Store, keep: int, every: int | None) -> None:
        if every is not None and every < 1:
            raise SpotTrainingError(f"keep_every must be 1 step or more, not {every}")
        self._store, self._keep, self._every = store, keep, every
        self.above: CheckpointRetention | None = None
        """Of the level that has the history; then ``store`` has its newest checkpoints only."""
        self.in_use: str | None = None
        """A checkpoint that is being copied, and stays."""
        self.restored: Callable[[], Checkpoint | None] = lambda: None
        """The restored checkpoint while the script has it: its files stay unless the disk is full."""
        self._read: dict[str, Retained] = {}
        self.retained = Retained()
        """Of the history of this process; on all ranks."""
        self.size: int | None = None
        """Bytes of the last committed checkpoint; None before the first."""
        self.expected: int | None = None
        """Bytes of the restored checkpoint, or of the first one before it is written; None: unknown."""

    def resume(self, document: Mapping[str, Any]) -> None:
        """Continue the history of a restored checkpoint, by what its manifest stores."""
        self.retained = parse_retained(document) or Retained()

    def planned(self, step: int, keep: Keep | None, before: int | None) -> Retained:
        """Return what a checkpoint of ``step`` is to store; what was deleted meanwhile is left out.

        ``before``: the step that this process last saved or restored.
        """
        if self.above is not None:
            return self.above.retained
        steps = {step, *(step_of(name) for name in self._store.names())}
        present = self.retained.only([one_step for one_step in steps if one_step is not None])
        return present.after(step, keep or Keep(), before=before, every=self._every)

    def committed(self, step: int, document: Mapping[str, Any]) -> None:
        """Record what a committed checkpoint of this process stores."""
        self._read[name_of(step)] = self.retained = parse_retained(document) or Retained()

    def removable(self, name: str) -> list[str]:
        """Return what need not stay after the commit of ``name``."""
        names, restorable, restored = self._store.names(), self._restorable(name), self.restored()
        in_use = {self.in_use, restored and name_of(restored.step)}
        older = [old for old in restorable[self._keep :] if old not in in_use]
        stays = set[int]()
        if older and self.above is None:
            stays |= self.retained.steps
            for newest in (*names[: len(names) - len(restorable)], *restorable[: self._keep]):
                if (retained := self._stored(newest)) is None:
                    return []
                stays |= retained.steps
        return [old for old in older if step_of(old) not in stays and self._stored(old) is not None]

    def saved(self, size: int) -> None:
        """Record the bytes of a committed checkpoint; log at the first how many fit."""
        is_first, self.size = self.size is None, size
        free = self._store.free_bytes()
        if not is_first or free is None or size <= 0:
            return
        fitting, location = 1 + free // size, self._store.location
        if fitting > self._keep:
            log.info("%s: a checkpoint has %s; %d fit", location, _text(size), fitting)
        elif fitting > 1:
            log.warning(
                "%s: only %d checkpoints of %s fit, keep=%d and the next one need room for %d; older ones are"
                " removed before a save",
                *(location, fitting, _text(size), self._keep, self._keep + 1),
            )
        else:
            log.warning(
                "%s: only 1 checkpoint of %s fits, and it is not removed before the next one is complete:"
                " no further save can succeed",
                *(location, _text(size)),
            )

    def fits(self, count: int = 1) -> bool:
        """Return whether ``count`` checkpoints of the last size fit, as far as is known."""
        size, free = self.size or self.expected, self._store.free_bytes()
        return size is None or free is None or free >= count * size * _MARGIN

    def drop_last(self, name: str) -> bool:
        """Remove from a full disk what is damaged, else the weakest one before the newest up to ``name``.

        Returns False if there is neither.
        """
        if self._store.drop_damaged():
            log.warning("%s is full: damaged checkpoints are removed for the next one", self._store.location)
            return True
        older = [old for old in self._restorable(name)[1:] if old != self.in_use]
        readable = [old for old in older if self._stored(old) is not None]
        if not readable:
            return False
        last = min(readable, key=lambda old: (self.retained.strength(step_of(old) or 0), old))
        reasons = ", ".join(self.retained.reasons(step_of(last) or 0))
        text = f"{last} ({reasons})" if reasons else last
        log.warning("%s is full: %s is removed for the next checkpoint", self._store.location, text)
        self._store.remove(last)
        return True

    def _restorable(self, name: str) -> list[str]:
        """Return the committed checkpoints up to ``name``, newest first; ``restore`` skipped newer ones."""
        return [committed for committed in self._store.names() if committed <= name]

    def _stored(self, name: str) -> Retained | None:
        """Return what a checkpoint stores; None if it cannot be read."""
        if name not in self._read:
            with contextlib.suppress(OSError, ValueError):
                if (retained := parse_retained(parse(self._store.manifest(name)).retained)) is not None:
                    self._read[name] = retained
        return self._read.get(name)


def _text(size: int) -> str:
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= factor:
            return f"{size / factor:.3g} {unit}"
    return f"{size} bytes"
