"""What a checkpoint of PyTorch holds: the parts' state, copied at a step, and random numbers; its files."""

from __future__ import annotations

import copy
import hashlib
import random
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import torch
from torch.nn.parallel import DistributedDataParallel

from spot_training.errors import SpotTrainingError, one_line


class Stateful(Protocol):
    """Whatever has a state that can be taken and put back: a model, an optimizer, a scheduler, a scaler."""

    def state_dict(self) -> Mapping[str, Any]:
        """Return the state."""

    def load_state_dict(self, state: Any) -> Any:
        """Put a state back."""


def bare(part: Any) -> Any:
    """Return a module without what DDP and torch.compile put around it: then any number of ranks loads it."""
    while True:
        if isinstance(part, DistributedDataParallel):
            part = part.module
        elif isinstance(part, torch.nn.Module) and hasattr(part, "_orig_mod"):
            part = part._orig_mod
        else:
            return part


def staged(state: Any) -> Any:
    """Return a copy of a state in the host's memory that no later step changes. Tied tensors stay one."""
    return _copy(state, {})


def _copy(state: Any, made: dict[Any, torch.Tensor]) -> Any:
    if isinstance(state, torch.Tensor):
        key = (state.device, state.data_ptr(), state.dtype, state.shape, state.stride())
        if key not in made or not state.numel():
            made[key] = state.detach().to("cpu", copy=True)
        return made[key]
    if isinstance(state, dict):  # an OrderedDict of a module carries _metadata, which a shallow copy keeps
        new = copy.copy(state)
        for key, value in state.items():
            new[key] = _copy(value, made)
        return new
    if type(state) in (list, tuple):
        return type(state)(_copy(value, made) for value in state)
    return copy.deepcopy(state)


def randomness() -> dict[str, Any]:
    """Return the state of Python's, NumPy's (where loaded), PyTorch's and the GPUs' random numbers."""
    state: dict[str, Any] = {"python": random.getstate(), "torch": torch.get_rng_state()}
    if numpy := sys.modules.get("numpy"):
        name, keys, *rest = numpy.random.get_state()
        state["numpy"] = [name, torch.from_numpy(keys.astype("int64")), *rest]
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        state["cuda"] = torch.cuda.get_rng_state()
    return state


def set_randomness(state: Mapping[str, Any]) -> None:
    """Put back what ``randomness`` returned."""
    random.setstate(state["python"])
    torch.set_rng_state(state["torch"])
    if (numpy := sys.modules.get("numpy")) and "numpy" in state:
        name, keys, *rest = state["numpy"]
        numpy.random.set_state((name, keys.numpy().astype("uint32"), *rest))
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"])


def fingerprint(parts: Mapping[str, Stateful]) -> str:
    """Return what tells one set of parts from another: their names, and the modules' tensors by shape."""
    lines = []
    for name, part in sorted(parts.items()):
        module = bare(part)
        shapes = module.state_dict() if isinstance(module, torch.nn.Module) else {}
        lines += [name, *(f"{key} {tuple(getattr(value, 'shape', ()))}" for key, value in shapes.items())]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def write(path: Path, state: Any) -> None:
    """Write a staged state into a file.

    Raises:
        SpotTrainingError: Something in it would not be read again: PyTorch reads tensors and plain values
        only.
    """
    torch.save(state, path)
    try:
        torch.load(
            path, map_location="meta", mmap=True, weights_only=True
        )  # its structure: no tensor is read
    except Exception as error:
        found = re.search(r"GLOBAL (\S+)", str(error))
        raise SpotTrainingError(
            f"{path.name} could not be read again: it holds {found[1] if found else one_line(error)};"
            " allowed: tensors and plain values, and what torch.serialization.add_safe_globals names"
        ) from error


def read(path: Path) -> Any:
    """Return what ``write`` wrote, in the host's memory."""
    return torch.load(path, map_location="cpu", weights_only=True)
