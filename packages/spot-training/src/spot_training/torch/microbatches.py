"""A rank's samples of a step in parts that fit into memory, with the weights of their losses."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from spot_training.errors import SpotTrainingError


def parts_of(
    batch: Any, size: int | None, model: Any, *, samples: int, mine: int, ranks: int
) -> Iterator[tuple[Any, float]]:
    """Yield parts of ``batch`` with their weights; gradients are exchanged in the last one only.

    ``samples``: of the step, of all ranks; ``mine``: of this rank, 0 if the batch repeats one of others. The
    mean over the ranks of the weighted losses' sums is then the mean over ``samples``.
    """
    if size is not None and size < 1:
        raise SpotTrainingError(f"parts must have 1 sample or more, not {size}")
    count = max(mine, 1)
    size = size or count
    for begin in range(0, count, size):
        end = min(begin + size, count)
        part = batch if (begin, end) == (0, count) else take(batch, begin, end, count)
        weight = (end - begin) * ranks / samples if mine else 0.0
        is_last = end == count
        no_sync = getattr(model, "no_sync", None)
        with contextlib.nullcontext() if is_last or no_sync is None else no_sync():
            yield part, weight


def take(batch: Any, begin: int, end: int, count: int) -> Any:
    """Return the samples ``begin`` to ``end`` of a collated batch of ``count``."""
    if isinstance(batch, torch.Tensor):
        return batch[begin:end] if batch.ndim and len(batch) == count else batch
    if isinstance(batch, Mapping):
        return type(batch)({key: take(value, begin, end, count) for key, value in batch.items()})  # type: ignore[call-arg]
    if isinstance(batch, (list, tuple)):
        if not any(isinstance(value, (torch.Tensor, Mapping, list, tuple)) for value in batch):
            return batch[begin:end] if len(batch) == count else batch  # texts, one per sample
        values = [take(value, begin, end, count) for value in batch]
        return type(batch)(*values) if hasattr(batch, "_fields") else type(batch)(values)
    return batch
