"""Loads a checkpoint's parts from a file that is mapped into memory: the ranks of a machine share its pages.

So no rank needs host memory for a second copy of the state, and the pages that rank 0 has read to compare the
checksum are not read from the storage again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch.optim import Optimizer

from spot_training.errors import MismatchError, one_line
from spot_training.torch import state


def load_parts(parts: Mapping[str, Any], file: Path) -> None:
    """Load the state of all parts from the file of rank 0; no tensor stays in the file.

    Raises:
        MismatchError: a part is missing or does not fit.
    """
    stored = state.read(file, is_mapped=True)
    mapped = {tensor.untyped_storage().data_ptr() for tensor in state.tensors(stored)}

    def leave(value: Any) -> Any:
        """Return a value outside the file."""
        return value.clone() if _is_in(value, mapped) else value

    for name, part in parts.items():
        try:
            _load(part, stored[name], leave)
        except (KeyError, ValueError, RuntimeError, TypeError) as error:
            raise MismatchError(
                f"{file.parent.parent}: {name} cannot be loaded: {one_line(error)}"
            ) from error


def _load(part: Any, stored: Any, leave: Callable[[Any], Any]) -> None:
    if isinstance(part, torch.nn.Module):
        for key in stored:
            if key.endswith("_extra_state"):  # the module may hold it; parameters and buffers are copied
                stored[key] = state.copy_to_cpu(stored[key])
        part.load_state_dict(stored)
        for tensor in (*part.parameters(), *part.buffers()):
            data = tensor.data
            if (copy := leave(data)) is not data:  # a module may assign instead
                tensor.data = copy
    elif isinstance(part, Optimizer):
        part.load_state_dict(stored)
        for key, value in part.state.items():
            part.state[key] = _map(value, leave)
    else:
        part.load_state_dict(state.copy_to_cpu(stored))


def _is_in(value: Any, mapped: set[int]) -> bool:
    return isinstance(value, torch.Tensor) and value.untyped_storage().data_ptr() in mapped


def _map(value: Any, change: Callable[[Any], Any]) -> Any:
    if isinstance(value, dict):
        return {key: _map(inner, change) for key, inner in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_map(inner, change) for inner in value)
    return change(value)
