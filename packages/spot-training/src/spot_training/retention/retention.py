"""Deletes what need not stay; for rank 0, which alone lists and deletes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from spot_training.errors import SpotTrainingError
from spot_training.retention.rules import Keep, Retained, parse_retained
from spot_training.storage.manifest import Checkpoint, name_of, parse, step_of
from spot_training.storage.store import Store


class CheckpointRetention:
    """The newest ``keep`` checkpoints of ``store`` stay, and what they or the present history refer to.

    So also where the newest is damaged and the one before is restored. A checkpoint whose manifest cannot be
    read is not deleted, and while it is among the newest, nothing is: what it refers to is not known.
    """

    def __init__(
        self, store: Store, keep: int, every: int | None, above: CheckpointRetention | None = None
    ) -> None:
        """``above``: of the level that has the history; then ``store`` has its newest checkpoints only."""
        if every is not None and every < 1:
            raise SpotTrainingError(f"keep_every must be 1 step or more, not {every}")
        self._store, self._keep, self._every, self._above = store, keep, every, above
        self.in_use: str | None = None
        """A checkpoint that is being copied, and stays."""
        self.restored: Callable[[], Checkpoint | None] = lambda: None
        """The restored checkpoint while the script has it: its files stay unless the disk is full."""
        self._read: dict[str, Retained] = {}
        self.retained = Retained()
        """Of the history of this process; on all ranks."""

    def resume(self, document: Mapping[str, Any]) -> None:
        """Continue the history of a restored checkpoint, by what its manifest stores."""
        self.retained = parse_retained(document) or Retained()

    def planned(self, step: int, keep: Keep | None, before: int | None) -> Retained:
        """Return what a checkpoint of ``step`` is to store; what was deleted meanwhile is left out.

        ``before``: the step that this process last saved or restored.
        """
        if self._above is not None:
            return self._above.retained
        steps = {step, *(step_of(name) for name in self._store.names())}
        present = self.retained.only([one_step for one_step in steps if one_step is not None])
        return present.after(step, keep or Keep(), before=before, every=self._every)

    def committed(self, step: int, document: Mapping[str, Any]) -> None:
        """Record what a committed checkpoint of this process stores."""
        self._read[name_of(step)] = self.retained = parse_retained(document) or Retained()

    def restorable(self, name: str) -> list[str]:
        """Return the committed checkpoints up to ``name``, newest first; ``restore`` skipped newer ones."""
        return [committed for committed in self._store.names() if committed <= name]

    def removable(self, name: str) -> list[str]:
        """Return what need not stay after the commit of ``name``."""
        names, restorable, restored = self._store.names(), self.restorable(name), self.restored()
        in_use = {self.in_use, restored and name_of(restored.step)}
        older = [old for old in restorable[self._keep :] if old not in in_use]
        stays = set[int]()
        if older and self._above is None:
            stays |= self.retained.steps
            for newest in (*names[: len(names) - len(restorable)], *restorable[: self._keep]):
                if (retained := self._stored(newest)) is None:
                    return []
                stays |= retained.steps
        return [old for old in older if step_of(old) not in stays and self._stored(old) is not None]

    def droppable(self, name: str) -> list[tuple[str, str]]:
        """Return names up to ``name``, each with why it stays: the first never goes, the last at first."""
        newest, *older = self.restorable(name) or [""]
        readable = [old for old in older if old != self.in_use and self._stored(old) is not None]
        readable.sort(key=lambda old: (self.retained.strength(step_of(old) or 0), old), reverse=True)
        ordered = [newest, *readable] if newest else []
        return [(old, ", ".join(self.retained.reasons(step_of(old) or 0))) for old in ordered]

    def _stored(self, name: str) -> Retained | None:
        """Return what a checkpoint stores; None if it cannot be read."""
        if name not in self._read:
            try:
                retained = parse_retained(parse(self._store.manifest(name)).retained)
            except (OSError, ValueError):
                return None
            if retained is not None:
                self._read[name] = retained
        return self._read.get(name)
