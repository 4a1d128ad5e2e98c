"""Which state is divided among the ranks, how, and what of it cannot be saved."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import torch
from torch.nn.parameter import is_lazy

from spot_training.errors import SpotTrainingError
from spot_training.torch.tree import TreePath

_REFUSED_CLASSES: Final = {
    "FullyShardedDataParallel": "FSDP1",
    "DeepSpeedEngine": "DeepSpeed",
    "DeepSpeedOptimizer": "DeepSpeed",
    "ZeROOptimizer": "DeepSpeed",
    "OSS": "FairScale",
    "DistributedOptimizer": "Megatron or torch.distributed.rpc",
    "DistributedFusedAdam": "Apex",
    "LowLevelZeroOptimizer": "ColossalAI",
}
"""By class: the library that divides a state in its own way."""
_REFUSED_TENSORS: Final = {"FlatParameter": "FSDP1", "ShardedTensor": "torch.distributed._shard"}
_REFUSED_ATTRIBUTES: Final = {"_fsdp_flattened": "FSDP1", "ds_id": "DeepSpeed ZeRO-3"}
"""Set by these libraries on a parameter that is, or may be, a part of it."""
_ZERO: Final = "ZeroRedundancyOptimizer"
_INNER: Final = ("optimizer", "_optimizer")
"""Where wrappers of optimizers (accelerate, Fabric) have theirs."""
_ALLOWED: Final = (
    "fully_shard (FSDP2, HSDP), tensor parallelism (DTensor), ZeroRedundancyOptimizer without"
    " overlap_with_ddp, DistributedDataParallel"
)


def is_divided(parts: Mapping[str, Any]) -> bool:
    """Return whether a part has a DTensor or is a ``ZeroRedundancyOptimizer``."""
    return any(
        is_zero(part) or any(is_dtensor(tensor) for _, tensor in _tensors(part)) for part in parts.values()
    )


def is_dtensor(value: Any) -> bool:
    """Return whether a value is a DTensor."""
    return isinstance(value, torch.Tensor) and "DTensor" in _classes(value)


def is_zero(part: Any) -> bool:
    """Return whether a part is a ``ZeroRedundancyOptimizer``."""
    return _ZERO in _classes(part)


def refuse_unsupported(parts: Mapping[str, Any]) -> None:
    """Raise ``SpotTrainingError`` if a part is divided in a way that is not saved, or has no values."""
    for name, part in parts.items():
        for reason in _reasons(part):
            raise SpotTrainingError(
                f"{name} is divided among the ranks, and cannot be saved: {reason}; use {_ALLOWED}"
            )
        for key, tensor in _tensors(part):
            if is_lazy(tensor):
                raise SpotTrainingError(f"{name}.{key} has no shape; call the model once before Loop()")
            if tensor.is_meta:
                raise SpotTrainingError(
                    f"{name} has no values, because {key} is on the meta device; call Loop() after "
                    "to_empty() and the initialization of the weights"
                )


def _reasons(part: Any) -> Iterator[str]:
    if isinstance(part, torch.nn.Module):
        inner = list(part.modules())
    elif hasattr(part, "param_groups"):  # a scheduler has an optimizer, too, but not its state
        inner = [part, *(value for name in _INNER if (value := getattr(part, name, None)) is not None)]
    else:
        inner = [part]
    for value in inner:
        for kind in sorted(_classes(value) & _REFUSED_CLASSES.keys()):
            yield f"it has a {kind} ({_REFUSED_CLASSES[kind]})"
        if is_zero(value) and getattr(value, "_overlap_with_ddp", False):
            yield f"it has a {_ZERO} with overlap_with_ddp"
        if is_zero(value) and value is not part:
            yield f"it wraps a {_ZERO} in a {type(part).__name__}"
    for name, tensor in _tensors(part):
        for kind in sorted(_classes(tensor) & _REFUSED_TENSORS.keys()):
            yield f"{name} is a {kind} ({_REFUSED_TENSORS[kind]})"
        for attribute, library in _REFUSED_ATTRIBUTES.items():
            if getattr(tensor, attribute, False) is not False:
                yield f"{name} has {attribute} ({library})"
        if is_dtensor(tensor) and type(tensor._local_tensor) not in (torch.Tensor, torch.nn.Parameter):
            yield f"{name} is a DTensor of {type(tensor._local_tensor).__name__}"


def _classes(value: Any) -> set[str]:
    return {base.__name__ for base in type(value).__mro__}


def _tensors(part: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(part, torch.nn.Module):
        yield from part.named_parameters()
        yield from part.named_buffers()
    for group in getattr(part, "param_groups", ()):
        yield from ((f"parameter {number}", tensor) for number, tensor in enumerate(group["params"]))


class OptimizerParameters:
    """The parameters of an optimizer, by their index in its ``state_dict``; none of any other part."""

    def __init__(self, part: Any) -> None:
        groups = getattr(part, "param_groups", ())
        self._parameters = [tensor for group in groups for tensor in group["params"]]

    def at(self, path: TreePath) -> Any:
        """Return the parameter to which the tensor at ``path`` belongs; None if there is none."""
        if len(path) < 3 or path[0] != "state" or not isinstance(path[1], int):
            return None
        return self._parameters[path[1]] if 0 <= path[1] < len(self._parameters) else None
