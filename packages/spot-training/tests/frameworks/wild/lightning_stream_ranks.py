"""Lightning's DDP: two ranks of a stream without a state, each in two workers."""

from __future__ import annotations

from pathlib import Path

from torch.utils.data import DataLoader

from frameworks.wild import common, lightning_stream, stream

RANKS, REPEATED = 2, 1


def main(folder: Path) -> None:
    """Train."""
    loader = DataLoader(stream.Stream(), batch_size=common.BATCH, num_workers=2)
    lightning_stream.train(folder, loader, stream.LENGTH, strategy="ddp")
