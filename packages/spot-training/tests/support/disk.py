"""A disk with faults: it stops, fails, recovers, loses data that was not flushed. A clock, and a notice."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

from spot_training.checkpointer import Checkpointer
from spot_training.notice import Notice
from spot_training.storage.calls import RetryPolicy
from spot_training.storage.files import Files


class Gone(BaseException):
    """The machine has stopped; nothing of the program runs any more."""


class Clock:
    """Time that advances by sleeping."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def retry_policy(self, seconds: float = 120.0) -> RetryPolicy:
        return RetryPolicy(seconds, self, self.sleep)


class Disk(Files):
    """Counts touches; ``at`` is called before each with its number, kind and path, and may raise."""

    def __init__(self, at: Callable[[int, str, Path], None] = lambda number, what, path: None) -> None:
        self.count = 0
        self.at = at
        self.unsynced: list[Path] = []
        self.renamed: list[tuple[Path, Path]] = []

    def touch(self, what: str, path: Path) -> None:
        self.count += 1
        self.at(self.count, what, path)
        if what == "write" and path not in self.unsynced:
            self.unsynced.append(path)
        elif what == "sync":
            self.unsynced = [one for one in self.unsynced if one != path]
            self.renamed = [(old, new) for old, new in self.renamed if new.parent != path]

    def rename(self, old: Path, new: Path) -> None:
        super().rename(old, new)
        self.renamed.append((old, new))

    def lose_power(self, *, keeps_renames: bool) -> None:
        """Leave half of each file that was not flushed; undo renames whose folder was not, or keep them."""
        for path in self.unsynced:
            if path.exists():
                os.truncate(path, path.stat().st_size // 2)
        if not keeps_renames:
            for old, new in reversed(self.renamed):
                if new.exists() and not old.exists():
                    new.rename(old)


def dying_at(number: int) -> Callable[[int, str, Path], None]:
    def at(count: int, what: str, path: Path) -> None:
        if count == number:
            raise Gone

    return at


def refusing(error: int, *kinds: str) -> Callable[[int, str, Path], None]:
    def at(count: int, what: str, path: Path) -> None:
        if what in kinds:
            raise OSError(error, os.strerror(error), str(path))

    return at


def content(text: str) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        (folder / "inner").mkdir()
        (folder / "inner" / "weights").write_text(text * 1000)
        (folder / "state").write_text(text)

    return write


def read(checkpointer: Checkpointer) -> tuple[int, str] | None:
    saved = checkpointer.restore()
    if saved is None:
        return None
    text = (saved.part() / "state").read_text()
    assert (saved.part() / "inner" / "weights").read_text() == text * 1000
    return saved.step, text


def let_go(checkpointer: Checkpointer) -> None:
    """What the end of a process does."""
    checkpointer._store.release()  # type: ignore[attr-defined]


STALE = errno.ESTALE


class FakeNotice(Notice):
    """A notice that a test sets."""

    received = False
    seconds_left = None

    def __init__(self) -> None:
        pass

    def close(self) -> None:
        pass
