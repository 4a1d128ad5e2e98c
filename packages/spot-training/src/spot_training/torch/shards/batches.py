"""Which ranks take the same batches: those of one model whose layers are divided (tensor parallelism)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from spot_training.errors import SpotTrainingError
from spot_training.torch.shards.support import is_dtensor


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
