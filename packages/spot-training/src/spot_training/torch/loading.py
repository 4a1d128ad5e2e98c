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
from spot_training.torch.growth import form, grow
from spot_training.torch.tree import mapped, tensors_of


def load_parts(
    parts: Mapping[str, Any], file: Path, grown: Mapping[str, Any], *, has_started: bool
) -> dict[str, Any]:
    """Load the state of all parts from the file of rank 0; no tensor stays in the file.

    ``grown``: parts whose form had changed since the script's start; before the script has begun its epoch
    those that still differ are returned, and not loaded.

    Raises ``MismatchError``: a part is missing or does not fit.
    """
    stored = state.read(file, is_mapped=True)
    in_file = {tensor.untyped_storage().data_ptr() for _, tensor in tensors_of(stored)}

    def leave(tensor: torch.Tensor) -> torch.Tensor:
        """Return a tensor outside the file."""
        return tensor.clone() if tensor.untyped_storage().data_ptr() in in_file else tensor

    later = {}
    for name, part in sorted(parts.items(), key=lambda item: not isinstance(item[1], torch.nn.Module)):
        try:
            if isinstance(part, torch.nn.Module):
                stored[name] = _with_names_of(part, stored[name])
            if name in grown and form(part) != form(part, stored[name]):
                if not has_started:
                    later[name] = grown[name]
                    continue
                grow(part, stored[name], grown[name], parts)
            _load(part, stored[name], leave)
        except (KeyError, ValueError, RuntimeError, TypeError) as error:
            line = f"{file.parent.parent}: {name} cannot be loaded: {one_line(error)}"
            raise MismatchError(line) from error
    return later


def _with_names_of(module: torch.nn.Module, stored: Any) -> Any:
    """Return a stored state with a module's names: of another number of GPUs it has other wrappers inside."""
    names = state.clean_names(module)
    present = {clean: key for key, clean in names.items()}
    if all(key in names for key in stored):
        return stored

    def renamed(key: str) -> str:
        plain = key.replace("_orig_mod.", "")
        return key if key in names else present.get(plain, present.get(plain.replace("module.", ""), key))

    return {renamed(key): value for key, value in stored.items()}


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
            part.state[key] = mapped(value, leave)
    else:
        part.load_state_dict(state.copy_to_cpu(stored))
