"""WebDataset: shards of uneven size, shuffled twice without seeds, augmented in two workers."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import webdataset
from torch.utils.data import DataLoader

from frameworks.wild import common
from frameworks.wild.stream import train

SHARDS = 5


def shards(folder: Path, sizes: Sequence[int]) -> list[str]:
    """Write shards of so many samples, once; return their paths."""
    folder.mkdir(exist_ok=True)
    paths = [folder / f"{number}.tar" for number in range(len(sizes))]
    begin = 0
    for size, path in zip(sizes, paths, strict=True):
        end = begin + size
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


def main(folder: Path, sizes: Sequence[int] = tuple(range(3, 3 + SHARDS)), **options: Any) -> None:
    """Train."""
    common.start(folder)
    samples = common.Samples(sum(sizes), noise=0.05)

    def augmented(sample: tuple[int]) -> Any:
        return samples[sample[0]]

    paths = shards(folder.parent / f"shards-{common.rank()}", sizes)
    data = webdataset.WebDataset(paths, shardshuffle=len(sizes), **options)
    data = data.shuffle(6).decode().to_tuple("cls").map(augmented)
    train(folder, DataLoader(data, batch_size=common.BATCH, num_workers=2), sum(sizes))
