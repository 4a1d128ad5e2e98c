"""Where checkpoints are kept: what a folder and a bucket have in common."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from spot_training.storage.manifest import File


class Store(Protocol):
    """Keeps checkpoints by name. ``OSError`` is a failure of what lies below; nothing is logged here.

    Rank 0 calls everything; the other ranks call ``part``, ``deliver``, ``drop`` and ``fetch`` only.
    """

    @property
    def where(self) -> str:
        """How people call the place."""
        ...

    def own(self) -> None:
        """Keep other trainings out, or find that one is in: ``InUseError``. Again: make sure of it."""
        ...

    def clean(self) -> None:
        """Remove what a save that was killed has left."""
        ...

    def names(self) -> list[str]:
        """Return the names of what was committed, newest step first."""
        ...

    def manifest(self, name: str) -> str:
        """Return the manifest's text; ``FileNotFoundError`` where there is none."""
        ...

    def stage(self, name: str) -> str:
        """Open a new place to write a checkpoint in, and return its key for all ranks."""
        ...

    def part(self, stage: str, part: str) -> Path:
        """Return an empty folder for one rank's files; what it wrote there before is gone."""
        ...

    def deliver(self, stage: str, part: str) -> Mapping[str, File]:
        """Make one rank's files outlive this machine; return what they are, by path in the checkpoint."""
        ...

    def commit(self, stage: str, name: str, manifest: str) -> None:
        """Make a staged checkpoint count, all of it at once."""
        ...

    def drop(self, stage: str) -> None:
        """Remove a stage that will not be committed."""
        ...

    def fetch(self, name: str) -> Path:
        """Return a folder with a checkpoint's files."""
        ...

    def remove(self, name: str) -> None:
        """Remove a checkpoint; killed half-way, what is left of it does not count as one."""
        ...

    def set_aside(self, name: str) -> None:
        """Let a damaged checkpoint no longer count; its files stay until a whole one is committed."""
        ...
