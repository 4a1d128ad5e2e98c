"""WebDataset's pipelines: their shuffles draw from the clock, unless they are seeded for each epoch.

The stages are recognised by their form (webdataset 1.0); nothing is imported.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any


class _Seed(int):
    """A seed of an epoch; not the script's."""


def set_epoch(dataset: Any, epoch: int, seed: int) -> None:
    """Let the order of a pipeline follow from ``epoch`` and ``seed``; any other dataset stays as it is.

    A seed that the script has passed to a stage stays. ``WebDataset`` draws one itself if it gets none, and
    passes it to its shuffle of shards: that one is replaced, and so is a generator, whose state is not saved.
    """
    drawn = getattr(dataset, "seed", None)
    for number, stage in enumerate(_stages(dataset)):
        if hasattr(stage, "epoch"):  # detshuffle, ResampledShards: they add 1 when they begin
            stage.epoch = epoch - 1
        if hasattr(stage, "deterministic"):
            stage.deterministic = True
        if drawn is not None and getattr(stage, "seed", None) == drawn:
            stage.seed = seed
        if _function(stage) == "_shuffle" and len(stage.args) < 3:  # size, initial size, generator, seed
            before = stage.kw.get("seed", drawn)
            if before == drawn or isinstance(before, _Seed):
                stage.kw.pop("rng", None)
                stage.kw["seed"] = _Seed(random.Random(f"{seed} {epoch} {number}").getrandbits(63))


def problem(dataset: Any) -> str:
    """Return why a pipeline's order cannot be resumed; empty if it can."""
    line = "resampled draws shards from the system's random numbers; use ResampledShards"
    return line if any(_function(stage) == "resampled_" for stage in _stages(dataset)) else ""


def _stages(dataset: Any) -> Iterator[Any]:
    pipeline = getattr(dataset, "pipeline", None)
    yield from pipeline if isinstance(pipeline, list) else ()


def _function(stage: Any) -> str:
    return getattr(getattr(stage, "f", None), "__name__", "")
