"""Two ranks that divide WebDataset's shards, shuffled without seeds, and again between two workers."""

from __future__ import annotations

from pathlib import Path

import webdataset

from frameworks.wild import webdataset_shards

RANKS = 2
SIZES = (5,) * 8


def main(folder: Path) -> None:
    """Train."""
    webdataset_shards.main(folder, SIZES, nodesplitter=webdataset.split_by_node)
