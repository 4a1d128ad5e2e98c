"""Objects of the script that a restart loses: they train, and are no parts of the ``Loop``."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from types import FrameType, FunctionType, MethodType, ModuleType
from typing import Any, Final

import torch
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.optim.swa_utils import AveragedModel
from torch.utils.data import DataLoader

from spot_training.torch.loaders import generators

_MAX_DEPTH: Final = 3
_MAX_TENSORS: Final = 400
_SKIPPED: Final = ("spot_training.", "torch.", "lightning.", "runpy", "importlib", "threading", "_pytest.")
_LEAVES: Final = (str, bytes, bool, int, float, type, ModuleType, FunctionType, MethodType, DataLoader)


def problems_of_parts(parts: Mapping[str, Any]) -> list[str]:
    """Return what optimizers train that is in no part."""
    saved = {id(value) for part in parts.values() for value in _tensors_of(part)}
    result = []
    for name, part in parts.items():
        if isinstance(part, Optimizer) and saved:
            values = [value for group in part.param_groups for value in group["params"]]
            if count := sum(id(value) not in saved for value in values):
                result.append(
                    f"{name} trains {count} parameters that are in no part, so their values are not "
                    "saved; pass Loop(..., model=model) with all modules that it trains"
                )
    return result


class ScriptObjects:
    """The objects that the script's running functions and its main module refer to."""

    def __init__(self, parts: Mapping[str, Any], loaders: Any) -> None:
        """``loaders``: what is resumed with the data, and not asked for."""
        self._known_ids: set[int] = set()
        for part in parts.values():
            self._know(part, 0)
        for loader in loaders:
            owners = (loader, loader.batch_sampler, loader.sampler, loader.dataset)
            self._known_ids |= {
                id(item) for owner in owners for item in generators.generators_of(owner).values()
            }
        self._objects: dict[str, Any] = {}
        seen_ids = set(self._known_ids)
        for name, value in _variables():
            self._collect(name, value, 0, seen_ids)
        self._first = {path: _state(value) for path, value in self._objects.items()}

    def problems(self) -> list[str]:
        """Return the optimizers, schedulers, scalers and averaged models that are no parts."""
        return [
            (
                f"{path}, a {type(value).__name__}, is not saved, so a restart loses its state; pass "
                f"Loop(..., {path.rpartition('.')[2]}={path})"
            )
            for path, value in self._objects.items()
            if isinstance(value, (Optimizer, LRScheduler, AveragedModel, torch.amp.GradScaler))
            and getattr(value, "_enabled", True)
        ]

    def changes(self) -> list[str]:
        """Return the modules and generators that have changed since this was created, and are no parts."""
        return [
            (
                f"{path}, a {type(value).__name__}, changes and is not saved, so a restart loses its "
                f"state; pass Loop(..., {path.rpartition('.')[2]}={path})"
            )
            for path, value in self._objects.items()
            if _state(value) != self._first[path]
        ]

    def _know(self, value: Any, depth: int) -> None:
        if id(value) in self._known_ids or isinstance(value, (*_LEAVES, torch.Tensor)) or depth > _MAX_DEPTH:
            return
        self._known_ids.add(id(value))
        if isinstance(value, torch.nn.Module):
            self._known_ids |= {id(module) for module in value.modules()}
        for _, inner in generators.inner_of(value):
            self._know(inner, depth + 1)

    def _collect(self, path: str, value: Any, depth: int, seen_ids: set[int]) -> None:
        if id(value) in seen_ids or isinstance(value, (*_LEAVES, torch.Tensor)) or depth > _MAX_DEPTH:
            return
        seen_ids.add(id(value))
        inner = list(generators.inner_of(value))
        is_wrapper = isinstance(value, (Optimizer, torch.nn.Module)) and any(
            id(item) in self._known_ids and isinstance(item, type(value).__mro__[-2]) for _, item in inner
        )
        kinds = (Optimizer, LRScheduler, torch.nn.Module, torch.amp.GradScaler)
        if isinstance(value, kinds) or generators.is_generator(value):
            if isinstance(value, torch.nn.Module):
                seen_ids |= {id(module) for module in value.modules()}
                is_wrapper |= any(id(module) in self._known_ids for module in value.modules())
            if not is_wrapper:
                self._objects[path] = value
        else:
            for name, item in inner:
                self._collect(f"{path}.{name}", item, depth + 1, seen_ids)


def _variables() -> Iterator[tuple[str, Any]]:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if not str(frame.f_globals.get("__name__")).startswith(_SKIPPED):
            yield from list(frame.f_locals.items())
        frame = frame.f_back
    yield from list(vars(sys.modules["__main__"]).items())


def _tensors_of(part: Any) -> Iterator[Any]:
    modules = [part] if isinstance(part, torch.nn.Module) else []
    modules += [inner for _, inner in generators.inner_of(part) if isinstance(inner, torch.nn.Module)]
    for module in modules:
        yield from module.parameters()


def _state(value: Any) -> Any:
    """Return something that changes with a module's tensors or a generator's state."""
    if generators.is_generator(value):
        return generators.state_of(value)
    if not isinstance(value, torch.nn.Module):
        return None
    tensors = [*value.parameters(), *value.buffers()][:_MAX_TENSORS]
    return [item.detach().flatten()[:8].tolist() for item in tensors if item.layout == torch.strided]
