"""WebDataset: shards of uneven size, shuffled twice without seeds, augmented in two workers."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from typing import Any

import webdataset
from torch.utils.data import DataLoader

from tests.real.wild import common
from tests.real.wild.stream import train

SHARDS, LENGTH = 5, 25


def shards(folder: Path) -> list[str]:
    """Write the shards, once; return their paths."""
    folder.mkdir(exist_ok=True)
    paths = [folder / f"{number}.tar" for number in range(SHARDS)]
    begin = 0
    for number, path in enumerate(paths):
        end = begin + 3 + number
        if not path.exists():
            with tarfile.open(path.with_suffix(".new"), "w") as archive:
                for index in range(begin, end):
                    content = str(index).encode()
                    entry = tarfile.TarInfo(f"{index:04}.cls")
                    entry.size = len(content)
                    archive.addfile(entry, io.BytesIO(content))
            path.with_suffix(".new").rename(path)
        begin = end
    return [str(path) for path in paths]


def main(folder: Path) -> None:
    """Train."""
    common.start(folder)
    samples = common.Samples(LENGTH, noise=0.05)

    def augmented(sample: tuple[int]) -> Any:
        return samples[sample[0]]

    data = webdataset.WebDataset(shards(folder.parent / "shards"), shardshuffle=SHARDS)
    data = data.shuffle(6).decode().to_tuple("cls").map(augmented)
    train(folder, DataLoader(data, batch_size=common.BATCH, num_workers=2), LENGTH)
