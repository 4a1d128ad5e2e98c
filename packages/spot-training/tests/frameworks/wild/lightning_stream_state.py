"""Lightning: a stream with a state that outlasts an epoch, in the Trainer's process, with accumulation."""

from __future__ import annotations

from pathlib import Path

from torch.utils.data import DataLoader

from frameworks.wild import common, lightning_stream, stream_state

REPEATED = 2


def main(folder: Path) -> None:
    """Train."""
    loader = DataLoader(stream_state.Stream(), batch_size=common.BATCH)
    lightning_stream.train(folder, loader, stream_state.LENGTH, accumulate_grad_batches=2)
