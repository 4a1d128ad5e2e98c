"""Detects state that is divided among the ranks: rank 0 would save its own part as if it were all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import torch

from spot_training.errors import SpotTrainingError

_SHARDED_CLASSES: Final = frozenset(
    {
        "FullyShardedDataParallel",
        "ZeroRedundancyOptimizer",
        "DeepSpeedEngine",
        "DeepSpeedZeroOptimizer",
        "DeepSpeedZeroOptimizer_Stage3",
    }
)
_SHARDED_TENSORS: Final = frozenset({"DTensor", "ShardedTensor"})


def refuse_sharded(parts: Mapping[str, Any]) -> None:
    """Raise ``SpotTrainingError`` if a part's state is divided among the ranks (FSDP, DTensor, ZeRO)."""
    for name, part in parts.items():
        for reason in _reasons(part):
            raise SpotTrainingError(
                f"{name} is divided among the ranks: {reason}; allowed: the same state on all ranks, as with"
                " DistributedDataParallel. FSDP, tensor parallelism and ZeRO are not supported"
            )


def _reasons(part: Any) -> Iterator[str]:
    for inner in part.modules() if isinstance(part, torch.nn.Module) else (part,):
        if kinds := _SHARDED_CLASSES.intersection(base.__name__ for base in type(inner).__mro__):
            yield f"it has a {min(kinds)}"
    for name, tensor in _tensors(part):
        kinds = _SHARDED_TENSORS.intersection(base.__name__ for base in type(tensor).__mro__)
        if kinds:
            yield f"{name} is a {min(kinds)}"


def _tensors(part: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(part, torch.nn.Module):
        yield from part.named_parameters()
        yield from part.named_buffers()
    for group in getattr(part, "param_groups", ()):
        yield from ((f"parameter {number}", tensor) for number, tensor in enumerate(group["params"]))
