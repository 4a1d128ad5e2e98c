"""Which state is divided among the ranks, how, what of it cannot be saved, and which ranks share batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import torch
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer

from spot_training.errors import SpotTrainingError
from spot_training.torch.state import TreePath

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


def parameters_of(part: Any) -> dict[TreePath, Any]:
    """Return the parameters of an optimizer, by where its ``state_dict`` has their state; else none."""
    groups = getattr(part, "param_groups", ())
    tensors = (tensor for group in groups for tensor in group["params"])
    return {("state", number): tensor for number, tensor in enumerate(tensors)}


class ZeroState:
    """The ``state_dict`` of this rank's parameters, by the index that they have among all.

    ``ZeroRedundancyOptimizer.state_dict`` would first send all state to one rank (PyTorch, "Distributed
    Optimizers", ``consolidate_state_dict``).
    """

    def __init__(self, zero: Any) -> None:
        self.optimizer = zero

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """The groups of all parameters."""
        groups: list[dict[str, Any]] = self.optimizer.param_groups
        return groups

    def state_dict(self) -> dict[str, Any]:
        """Return the groups of all parameters, and the state of those that this rank updates."""
        zero, local = self.optimizer, self.optimizer.optim.state
        state = {index: dict(local[tensor]) for index, tensor in self._parameters() if tensor in local}
        stored = {**Optimizer.state_dict(zero), "state": state}
        # A group that was added later has only in the local optimizer what its class sets.
        pairs = zip(zero.optim.param_groups, stored["param_groups"], strict=True)
        stored["param_groups"] = [{**local_group, **group} for local_group, group in pairs]
        return stored

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load a state with at least this rank's parameters."""
        self.optimizer.load_state_dict({**state, "state": self.of_this_rank(state["state"])})

    def of_this_rank(self, state: Mapping[int, Any]) -> dict[int, Any]:
        """Return of a state by parameter what this rank updates."""
        local = {id(tensor) for group in self.optimizer.optim.param_groups for tensor in group["params"]}
        mine = (index for index, tensor in self._parameters() if id(tensor) in local)
        return {index: state[index] for index in mine if index in state}

    def _parameters(self) -> list[tuple[int, Any]]:
        return list(enumerate(tensor for group in self.param_groups for tensor in group["params"]))


def data_ranks(parts: Mapping[str, Any], ranks: Any, mesh: Any = None) -> tuple[int, int]:
    """Return this rank's number among those that take different batches, and how many there are.

    ``mesh``: the ``DeviceMesh`` of those ranks. By default all, with ``fully_shard`` those of its mesh, with
    tensor parallelism alone, or beside DDP, one for each mesh. All ranks call it.

    Raises ``SpotTrainingError``: the parts do not say it.
    """
    if mesh is None:
        sharded = {_flat(info) for info in _sharding_meshes(parts)}
        parameters = (tensor for module in _modules(parts) for tensor in module.parameters(recurse=False))
        tensors = {_flat(tensor.device_mesh) for tensor in parameters if is_dtensor(tensor)}
        if len(sharded) > 1 or (not sharded and len(tensors) > 1):
            meshes = sharded or tensors
            raise SpotTrainingError(
                f"the model is divided by meshes of ranks {sorted(meshes)}, so it is unknown which ranks "
                "take the same batches; pass Loop(data_mesh=...), the mesh of those that take different ones"
            )
        if not sharded and tensors:
            mine = tensors.pop()
            groups = sorted(set(ranks.exchange(mine)))
            return groups.index(mine), len(groups)
        members = sharded.pop() if sharded else tuple(range(ranks.size))
    else:
        members = _flat(mesh)
    if ranks.rank not in members:
        raise SpotTrainingError(f"rank {ranks.rank} takes no batches; use one of {list(members)}")
    return members.index(ranks.rank), len(members)


def _sharding_meshes(parts: Mapping[str, Any]) -> Iterator[Any]:
    """Yield the meshes of ``fully_shard``."""
    for module in _modules(parts):
        sharding = module._get_fsdp_state() if hasattr(module, "_get_fsdp_state") else None
        groups = getattr(sharding, "_fsdp_param_groups", None)
        if groups is None:  # before PyTorch 2.12
            groups = filter(None, [getattr(sharding, "_fsdp_param_group", None)])
        for group in groups:
            information = group.mesh_info
            if getattr(information, "is_spmd_mesh", False):
                raise SpotTrainingError(
                    "fully_shard has dp_mesh_dims; pass Loop(data_mesh=...), the mesh of the ranks that "
                    "take different batches"
                )
            yield information.mesh


def _modules(parts: Mapping[str, Any]) -> Iterator[Any]:
    for part in parts.values():
        if isinstance(part, torch.nn.Module):
            yield from part.modules()


def _flat(mesh: Any) -> tuple[int, ...]:
    return tuple(mesh.mesh.flatten().tolist())
