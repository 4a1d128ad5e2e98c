"""The content of a PyTorch checkpoint: trees of tensors by key, random number state, and their files."""

from __future__ import annotations

import contextlib
import copy
import hashlib
import io
import pickle
import random
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias

import torch
from torch.nn.parallel import DataParallel, DistributedDataParallel

from spot_training.errors import SaveError, one_line
from spot_training.storage.files import hashed

TreePath: TypeAlias = tuple[Any, ...]
PLACEHOLDER: Final = torch.zeros(1)
"""In a tree without tensors: here is one. Not empty, so that a file has it once."""


class Stateful(Protocol):
    """An object with a state dict: a model, an optimizer, a scheduler, a gradient scaler."""

    def state_dict(self) -> Mapping[str, Any]:
        """Return the state."""

    def load_state_dict(self, state: Any) -> Any:
        """Load a state."""


_WRAPPERS = (DistributedDataParallel, DataParallel)


def unwrap(part: Any) -> Any:
    """Return a module without the wrappers of DDP and torch.compile, loadable by any number of ranks."""
    while True:
        if isinstance(part, _WRAPPERS):
            part = part.module
        elif isinstance(part, torch.nn.Module) and hasattr(part, "_orig_mod"):
            part = part._orig_mod
        else:
            return part


def clean_names(module: torch.nn.Module) -> dict[str, str]:
    """Return the name of each key of the state dict without the wrappers of modules inside."""
    prefixes = {}
    for name, inner in module.named_modules():
        begin = f"{name}." if name else ""
        if isinstance(inner, _WRAPPERS):
            prefixes[f"{begin}module."] = begin
        elif hasattr(inner, "_orig_mod"):
            prefixes[f"{begin}_orig_mod."] = begin
    result = {}
    for key in module.state_dict():
        clean = key
        for prefix in sorted(prefixes, key=len, reverse=True):
            if clean.startswith(prefix):
                clean = prefixes[prefix] + clean.removeprefix(prefix)
        result[key] = clean
    return result


class HostBuffers:
    """Host memory of one copy of a state, used again for the next: new memory takes longer than the copy."""

    def __init__(self) -> None:
        self._tensors: list[torch.Tensor] = []
        self.begin()

    def begin(self) -> None:
        """Use the memory again from its beginning; the copy that has it must not be needed any more."""
        self._count = 0

    def copy(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a copy of a tensor."""
        number, self._count = self._count, self._count + 1
        if number < len(self._tensors) and _is_alike(self._tensors[number], tensor):
            return self._tensors[number].copy_(tensor)
        copy_of_tensor = tensor.to("cpu", copy=True)
        self._tensors[number : number + 1] = [copy_of_tensor]
        return copy_of_tensor


def _is_alike(buffer: torch.Tensor, tensor: torch.Tensor) -> bool:
    return buffer.layout == tensor.layout == torch.strided and (
        (buffer.dtype, buffer.shape, buffer.stride()) == (tensor.dtype, tensor.shape, tensor.stride())
    )


def copy_to_cpu(state: Any, buffers: HostBuffers | None = None) -> Any:
    """Return a deep copy of a state in host memory, in ``buffers`` if given; tied tensors stay tied."""
    return _copy(state, {}, buffers or HostBuffers())


def _copy(state: Any, copies: dict[Any, torch.Tensor], buffers: HostBuffers) -> Any:
    if isinstance(state, torch.Tensor):
        if hasattr(state, "device_mesh"):  # a DTensor: here is a part of it
            raise TypeError(
                "a tensor was divided among the ranks after Loop(); call Loop() after fully_shard"
            )
        key = (state.device, state.data_ptr(), state.dtype, state.shape, state.stride())
        if key not in copies or not state.numel():
            copies[key] = buffers.copy(state.detach())
        return copies[key]
    if isinstance(state, dict):  # an OrderedDict of a module carries _metadata, which a shallow copy keeps
        new = copy.copy(state)
        for key, value in state.items():
            new[key] = _copy(value, copies, buffers)
        return new
    if type(state) in (list, tuple):
        return type(state)(_copy(value, copies, buffers) for value in state)
    if (numpy := sys.modules.get("numpy")) and isinstance(state, numpy.generic):
        return state.item()  # a Python number of the same value: files hold tensors and plain values
    return copy.deepcopy(state)


def size(state: Any) -> int:
    """Return the bytes of a state's dense tensors; tied ones count once."""
    dense = [tensor for _, tensor in tensors_of(state) if tensor.layout == torch.strided]
    return sum({tensor.data_ptr(): tensor.nbytes for tensor in dense}.values())


def randomness() -> dict[str, Any]:
    """Return the random number state of Python, NumPy (if imported), PyTorch and the GPU."""
    state: dict[str, Any] = {"python": random.getstate(), "torch": torch.get_rng_state()}
    if numpy := sys.modules.get("numpy"):
        name, keys, *rest = numpy.random.get_state()
        state["numpy"] = [name, torch.from_numpy(keys.astype("int64")), *rest]
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        state["cuda"] = torch.cuda.get_rng_state()
    return state


def set_randomness(state: Mapping[str, Any]) -> None:
    """Restore the state that ``randomness`` returned."""
    random.setstate(state["python"])
    torch.set_rng_state(state["torch"])
    if (numpy := sys.modules.get("numpy")) and "numpy" in state:
        name, keys, *rest = state["numpy"]
        numpy.random.set_state((name, keys.numpy().astype("uint32"), *rest))
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"])


def fingerprint(parts: Mapping[str, Stateful]) -> str:
    """Return a hash of the parts' names and the shapes of the modules' tensors."""
    lines = []
    for name, part in sorted(parts.items()):
        module = unwrap(part)
        names = clean_names(module) if isinstance(module, torch.nn.Module) else {}
        shapes = module.state_dict() if names else {}
        lines += [name, *(f"{names[key]} {tuple(getattr(shapes[key], 'shape', ()))}" for key in shapes)]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


class UnsupportedStateError(SaveError):
    """A part's state has an object that PyTorch does not load."""


def check_types(parts: Mapping[str, Stateful]) -> None:
    """Raise ``UnsupportedStateError`` if a part's state has an object that PyTorch would not load."""
    for name, part in parts.items():
        try:
            content = io.BytesIO()
            torch.save(copy_to_cpu(mapped(part.state_dict(), lambda _: torch.empty(0))), content)
            _load(io.BytesIO(content.getvalue()))
        except Exception as error:
            raise UnsupportedStateError(f"{name} cannot be saved: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    match = re.search(r"GLOBAL (\S+)", str(error))
    allowed = "use tensors, plain values, and types added by torch.serialization.add_safe_globals"
    return f"it has {match[1] if match else one_line(error)}; {allowed}"


def write(path: Path, state: Any, check: Callable[[], object] = lambda: None) -> None:
    """Write a copied state; ``check`` may end that early. ``UnsupportedStateError``: it cannot be loaded."""
    with hashed(path, check) as file:
        try:
            torch.save(state, file)
        except (TypeError, AttributeError, pickle.PicklingError) as error:
            raise UnsupportedStateError(f"{path.name} cannot be written: {one_line(error)}") from error
    try:
        _load(path, map_location="meta", mmap=True)  # the structure, without reading tensors
    except Exception as error:
        raise UnsupportedStateError(f"{path.name} cannot be loaded: {_reason(error)}") from error


def read(path: Path, *, is_mapped: bool = False) -> Any:
    """Return the state that ``write`` wrote, in host memory.

    ``is_mapped``: tensors are pages of the file where the file system can map it; they are to be copied
    before the file is deleted.
    """
    with contextlib.suppress(*((OSError, RuntimeError) if is_mapped else ())):  # without mmap
        return _load(path, map_location="cpu", mmap=is_mapped)
    return _load(path, map_location="cpu")


def _load(source: Any, **options: Any) -> Any:
    with torch.serialization.safe_globals(_array_types()):
        return torch.load(source, weights_only=True, **options)


def _array_types() -> list[Any]:
    """Return what PyTorch needs to load NumPy's arrays; empty if NumPy is not installed."""
    try:
        import numpy
    except ImportError:
        return []
    functions = [numpy.empty(0).__reduce__()[0], numpy.ndarray, numpy.dtype]
    codes = "".join(numpy.typecodes[kind] for kind in ("AllInteger", "AllFloat")) + "?"
    return [*functions, *{type(numpy.dtype(code)) for code in codes}]


def key_of(path: TreePath) -> str:
    """Return the key of a tensor: ``model.0.weight``, ``optimizer.state.3.exp_avg``."""
    return ".".join(map(str, path))


def tensors_of(tree: Any, path: TreePath = ()) -> Iterator[tuple[TreePath, torch.Tensor]]:
    """Yield the tensors of a tree with their paths."""
    if isinstance(tree, torch.Tensor):
        yield path, tree
    elif isinstance(tree, dict):
        for key, value in tree.items():
            yield from tensors_of(value, (*path, key))
    elif type(tree) in (list, tuple):
        for number, value in enumerate(tree):
            yield from tensors_of(value, (*path, number))


def replaced(tree: Any, change: Callable[[TreePath, torch.Tensor], Any], path: TreePath = ()) -> Any:
    """Return a tree with another value in place of each tensor; its dicts and lists are new."""
    if isinstance(tree, torch.Tensor):
        return change(path, tree)
    if isinstance(tree, dict):  # an OrderedDict of a module carries _metadata, which a shallow copy has
        new = copy.copy(tree)
        for key, value in tree.items():
            new[key] = replaced(value, change, (*path, key))
        return new
    if type(tree) in (list, tuple):
        return type(tree)(replaced(value, change, (*path, number)) for number, value in enumerate(tree))
    return tree


def mapped(tree: Any, change: Callable[[torch.Tensor], Any]) -> Any:
    """Return a tree with ``change`` of each tensor in its place."""
    return replaced(tree, lambda _, tensor: change(tensor))


def without_tensors(tree: Any) -> Any:
    """Return a tree with ``PLACEHOLDER`` in place of each tensor."""
    return mapped(tree, lambda _: PLACEHOLDER)
