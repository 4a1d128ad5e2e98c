"""One part of a ``Loop``'s checkpoint, without a model to load it into."""

from __future__ import annotations

from pathlib import Path

import torch

from spot_training.errors import SpotTrainingError
from spot_training.storage.manifest import part_of
from spot_training.torch import state
from spot_training.torch.shards.loading import StoredShards, has_shards, whole_state


def export_part(folder: Path, ranks: int, destination: Path, part: str) -> None:
    """Write a part's ``state_dict`` to a file of its own, with whole tensors.

    ``folder``: of a checkpoint that so many ranks wrote.
    """
    stored = StoredShards.read(folder, ranks) if has_shards(folder) else None
    parts = state.read(folder / part_of(0) / "parts.pt") if stored is None else stored.trees
    if part not in parts:
        raise SpotTrainingError(f"part {part!r}, allowed: {', '.join(sorted(parts))}")
    torch.save(parts[part] if stored is None else whole_state(stored, part), destination)
