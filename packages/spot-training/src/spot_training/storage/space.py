"""Space for the next checkpoint: older ones are removed when the disk is full, never the newest."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final

from spot_training.storage.store import Store

_MARGIN: Final = 1.05
"""A save needs this times the previous one's size: directories, the manifest, a log that has grown."""
_log = logging.getLogger("spot_training")


class Space:
    """Removes old checkpoints of ``store`` where the next one does not fit; rank 0 only."""

    def __init__(self, store: Store, keep: int) -> None:
        self._store, self._keep = store, keep
        self.size: int | None = None
        """Bytes of the last committed checkpoint; None before the first."""
        self.expected: int | None = None
        """Bytes of the restored checkpoint, or of the first one before it is written; None: unknown."""

    def saved(self, size: int) -> None:
        """Record the bytes of a committed checkpoint; log at the first how many fit."""
        is_first, self.size = self.size is None, size
        free = self._store.free_bytes()
        if not is_first or free is None or size <= 0:
            return
        fitting, location = 1 + free // size, self._store.location
        if fitting > self._keep:
            _log.info("%s: a checkpoint has %s; %d fit", location, _text(size), fitting)
        elif fitting > 1:
            _log.warning(
                "%s: only %d checkpoints of %s fit, keep=%d and the next one need room for %d; older ones are"
                " removed before a save",
                *(location, fitting, _text(size), self._keep, self._keep + 1),
            )
        else:
            _log.warning(
                "%s: only 1 checkpoint of %s fits, and it is not removed before the next one is complete:"
                " no further save can succeed",
                *(location, _text(size)),
            )

    def make(self, candidates: Callable[[], Sequence[tuple[str, str]]]) -> None:
        """Remove old checkpoints (see ``drop_last``) until one of the last size fits."""
        while not self.fits() and self.drop_last(candidates()):
            pass

    def fits(self, count: int = 1) -> bool:
        """Return whether ``count`` checkpoints of the last size fit, as far as is known."""
        size, free = self.size or self.expected, self._store.free_bytes()
        return size is None or free is None or free >= count * size * _MARGIN

    def drop_last(self, candidates: Sequence[tuple[str, str]]) -> bool:
        """Remove what is damaged, else the last candidate unless it is the only one; return whether it did.

        ``candidates``: names, each with why it stays otherwise; the first is the newest.
        """
        if self._store.drop_damaged():
            _log.warning("%s is full: damaged checkpoints are removed for the next one", self._store.location)
            return True
        if len(candidates) < 2:
            return False
        name, reason = candidates[-1]
        text = f"{name} ({reason})" if reason else name
        _log.warning("%s is full: %s is removed for the next checkpoint", self._store.location, text)
        self._store.remove(name)
        return True


def _text(size: int) -> str:
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= factor:
            return f"{size / factor:.3g} {unit}"
    return f"{size} bytes"
