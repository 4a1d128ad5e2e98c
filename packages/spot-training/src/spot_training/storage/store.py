"""The interface of checkpoint storage, for directories and object stores."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from spot_training.storage.manifest import File


class Store(Protocol):
    """Stores checkpoints by name. Raises ``OSError`` for failures of the storage; logs nothing.

    Rank 0 calls everything; the other ranks ``part``, ``deliver``, ``drop``, ``fetch`` and ``free_bytes``.
    """

    @property
    def location(self) -> str:
        """The directory or URL."""

    def acquire(self) -> None:
        """Acquire exclusive use, or check it if acquired; raises ``InUseError`` if another process has it."""

    def clean(self) -> None:
        """Remove incomplete files of killed saves."""

    def names(self) -> list[str]:
        """Return the names of the committed checkpoints, newest step first."""

    def manifest(self, name: str) -> str:
        """Return the manifest's text; raises ``FileNotFoundError`` if there is none."""

    def stage(self, name: str) -> str:
        """Create a staging area for a checkpoint and return its key for all ranks."""

    def part(self, stage: str, part: str) -> Path:
        """Return an empty directory for one rank's files; earlier files of it are deleted."""

    def deliver(self, stage: str, part: str) -> Mapping[str, File]:
        """Make one rank's files durable; return them by path in the checkpoint."""

    def commit(self, stage: str, name: str, manifest: str) -> None:
        """Commit a staged checkpoint atomically."""

    def amend(self, name: str, manifest: str) -> None:
        """Replace the manifest of a committed checkpoint atomically."""

    def drop(self, stage: str) -> None:
        """Remove a staging area without a commit."""

    def free_bytes(self) -> int | None:
        """Return the bytes that can still be written; None if unknown or unlimited."""
        return None

    def drop_damaged(self) -> bool:
        """Remove the files of quarantined checkpoints where they take room; return whether there were any."""
        return False

    def fetch(self, name: str) -> Path:
        """Return a local directory with a checkpoint's files."""

    def remove(self, name: str) -> None:
        """Remove a checkpoint; after a crash the rest of it does not count as a checkpoint."""

    def quarantine(self, name: str) -> None:
        """Exclude a damaged checkpoint; its files stay."""

    def damaged(self) -> list[str]:
        """Return the names of the excluded checkpoints."""

    def exclude(self, name: str, label: str) -> None:
        """Exclude another run's checkpoint; its files stay."""

    replaces: bool = False
    """Whether ``commit`` atomically replaces a checkpoint of the same name."""

    def release(self) -> None:
        """End the exclusive use; ``acquire`` starts it again."""
