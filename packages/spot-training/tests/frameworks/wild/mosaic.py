"""MosaicML streaming, shuffled, with its own loader and two workers that augment."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from streaming import MDSWriter, StreamingDataLoader, StreamingDataset
from streaming.base.util import clean_stale_shared_memory

from frameworks.wild import common
from frameworks.wild.stream import train

LENGTH = 24


class Stream(StreamingDataset):  # type: ignore[misc]
    """Numbers, augmented."""

    def __getitem__(self, index: int) -> Any:
        return common.Samples(LENGTH, noise=0.05)[super().__getitem__(index)["number"]]


def shards(folder: Path) -> Path:
    """Write the shards, once."""
    if not folder.exists():
        new = folder.with_name("new")
        shutil.rmtree(new, ignore_errors=True)
        with MDSWriter(out=str(new), columns={"number": "int"}, size_limit=64) as writer:
            for number in range(LENGTH):
                writer.write({"number": number})
        new.rename(folder)
    return folder


def main(folder: Path) -> None:
    """Train."""
    common.start(folder)
    clean_stale_shared_memory()
    data = Stream(
        local=str(shards(folder.parent / "shards")),
        shuffle=True,
        shuffle_seed=3,
        batch_size=common.BATCH,
        num_canonical_nodes=1,
    )
    train(folder, StreamingDataLoader(data, batch_size=common.BATCH, num_workers=2), LENGTH)
