"""One part of a ``Loop``'s checkpoint, without a model to load it into."""

from __future__ import annotations

from pathlib import Path

import torch

from spot_training.errors import SpotTrainingError
from spot_training.torch import state


def export_part(parts_file: Path, destination: Path, part: str) -> None:
    """Write a part's ``state_dict`` to a file of its own."""
    parts = state.read(parts_file)
    if part not in parts:
        raise SpotTrainingError(f"part {part!r}, allowed: {', '.join(sorted(parts))}")
    torch.save(parts[part], destination)
