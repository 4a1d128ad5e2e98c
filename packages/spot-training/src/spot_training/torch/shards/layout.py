"""How a process divides a tensor that it restores: as the parameter to which it belongs."""

from __future__ import annotations

from typing import Any

import torch

from spot_training.torch.shards.support import is_dtensor
from spot_training.torch.shards.tree import TreePath


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


def new_like(parameter: Any, dtype: torch.dtype) -> Any:
    """Return a new tensor of a parameter's shape, divided among the ranks as it is."""
    return torch.empty_like(parameter.detach(), dtype=dtype)


def on_all_ranks(parameter: Any, size: torch.Size, dtype: torch.dtype) -> Any:
    """Return a new DTensor that each rank has as a whole, on the mesh of a parameter."""
    from torch.distributed.tensor import DTensor, Replicate

    mesh = parameter.device_mesh
    local = torch.empty(size, dtype=dtype, device=parameter.to_local().device)
    return DTensor.from_local(local, mesh, [Replicate()] * mesh.ndim, run_check=False)


def device_of(parameter: Any) -> torch.device | None:
    """Return the device of a parameter's values here; None: the default."""
    if parameter is None:
        return None
    device: torch.device = parameter.to_local().device if is_dtensor(parameter) else parameter.device
    return device
