"""What a restart loses of a script: objects that train and are not parts of the ``Loop``, variables, logs."""

from __future__ import annotations

import contextlib
import gc
import io
import site
import sys
import sysconfig
from argparse import Namespace
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import count
from operator import length_hint
from pathlib import Path
from types import FrameType, FunctionType, MethodType, ModuleType, SimpleNamespace
from typing import Any, Final

import torch
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.optim.swa_utils import AveragedModel
from torch.utils.data import DataLoader, Dataset

from spot_training import attributes
from spot_training.torch.audit.gradients import version
from spot_training.torch.loaders import generators
from spot_training.torch.loaders.samples import digest, mark

_MAX_DEPTH: Final = 4
_MAX_TENSORS: Final = 400
_LEAVES: Final = (str, bytes, bool, int, float, torch.Tensor, ModuleType, DataLoader)
_CODE: Final = (type, FunctionType, MethodType)
_PLAIN: Final = (list, tuple, dict, set, deque, Counter, OrderedDict, defaultdict, Namespace, SimpleNamespace)
_OF_LOOP: Final = ("spot_training.torch.loop", "spot_training.torch.loaders.consumers")
_KINDS: Final = (Optimizer, LRScheduler, torch.nn.Module, torch.amp.GradScaler)
_INSTALLED: Final = tuple(
    {sysconfig.get_path("stdlib"), sysconfig.get_path("purelib"), *site.getsitepackages()}
)


def problems_of_parts(parts: Mapping[str, Any]) -> list[str]:
    """Return what optimizers train that is in no part."""
    saved = {id(value) for part in parts.values() for value in _tensors_of(part)}
    counts = {
        name: sum(id(value) not in saved for group in part.param_groups for value in group["params"])
        for name, part in parts.items()
        if isinstance(part, Optimizer) and saved
    }
    return [
        f"{name} trains {count} parameters that are in no part, so their values are not saved; pass"
        " Loop(..., model=model) with all modules that it trains"
        for name, count in counts.items()
        if count
    ]


class ScriptObjects:
    """What the script's running functions and its main module refer to, beside the parts of the ``Loop``."""

    def __init__(self, parts: Mapping[str, Any], loaders: Any = ()) -> None:
        """``loaders``: what is resumed with the data, and not asked for."""
        self._known_ids: set[int] = set()
        for part in parts.values():
            self._know(part, 0)
        for loader in loaders:
            for owner in (loader, loader.batch_sampler, loader.sampler, loader.dataset):
                self._known_ids |= {id(item) for item in generators.generators_of(owner).values()}
        self.objects: dict[str, Any] = {}
        """Optimizers, schedulers, modules, scalers and generators, by the path of names."""
        self.values: dict[str, Any] = {}
        """Marks of plain values, tensors, arrays and containers of the script's own, by path."""
        seen_ids = set(self._known_ids)
        for name, value in _variables(has_modules=bool(loaders)):
            with contextlib.suppress(Exception):  # of an object that raises when it is looked at
                self._collect(name, value, 0, seen_ids, is_own=name[0] != "_")
        for name, part in parts.items():
            if isinstance(part, Optimizer) and not _is_installed(type(part)):
                self.values |= {
                    f"{name}.{key}": _mark(value) for key, value in attributes.plain(part).items()
                }
        self._states = {path: _state(value) for path, value in self.objects.items()}

    def problems(self, first: ScriptObjects) -> list[str]:
        """Return what is not a part and loses its state, or has another one than in ``first``."""
        result = []
        for path, value in self.objects.items():
            named = f"{path}, a {type(value).__name__},"
            names = [name for name in path.split(".") if name.isidentifier() and name[:2] != "__"]
            end = f"is not saved, so a restart loses its state; pass Loop(..., {names[-1]}={path})"
            if isinstance(value, (Optimizer, LRScheduler, AveragedModel, torch.amp.GradScaler)):
                if getattr(value, "_enabled", True):
                    result.append(f"{named} {end}")
            elif first.objects.get(path) is value and first._states[path] != self._states[path]:
                result.append(f"{named} changes and {end}")
        return result

    def hidden(self, parts: Mapping[str, Any]) -> list[str]:
        """Return optimizers and schedulers of the parts' tensors that no path of names leads to."""
        gc.collect()  # what earlier trainings of this process have left
        trained = {id(value) for part in parts.values() for value in _tensors_of(part)}
        groups = [id(part.param_groups) for part in parts.values() if isinstance(part, Optimizer)]
        seen_ids = self._known_ids | {id(value) for value in self.objects.values()}
        result = []
        for item in gc.get_objects():
            if id(item) in seen_ids or not issubclass(type(item), (Optimizer, LRScheduler)):
                continue
            optimizer = getattr(item, "optimizer", item)
            parameters = [value for group in optimizer.param_groups for value in group["params"]]
            is_other = item is not optimizer or id(optimizer.param_groups) not in groups
            if is_other and any(id(value) in trained for value in parameters):
                result.append(
                    f"a {type(item).__name__} that an object of the script has is not saved, so a restart"
                    " loses its state; pass Loop(..., optimizer=…)"
                )
        return result

    def changed_values(self, first: ScriptObjects, resumed: list[Any]) -> list[str]:
        """Return the names of values that are others than in ``first``, and none of ``resumed``."""
        resumed_marks = [_mark(value) for value in resumed]
        return [
            path
            for path, value in self.values.items()
            if first.values.get(path, value) != value and value not in resumed_marks and "time" not in path
        ]

    def digests(self) -> dict[str, str]:
        """Return a digest of each module: another start is to have the same."""
        paths = (path for path, value in self.objects.items() if isinstance(value, torch.nn.Module))
        return {path: digest(self._states[path]) for path in paths}

    def differing(self, before: Mapping[str, str]) -> list[str]:
        """Return the modules with other ``digests`` than the process had that a restart follows."""
        return [
            f"{path}, which is not a part, differs from the one before the restart (random numbers without a "
            f"seed, or another file); pass Loop(..., {path}={path})"
            for path, value in self.digests().items()
            if before.get(path, value) != value
        ]

    def copies(self, first: ScriptObjects, parts: Mapping[str, Any]) -> list[str]:
        """Return the modules that were copied from a part since ``first``."""
        states = [state for part in parts.values() if (state := _state(part)) and not isinstance(state, str)]
        before = {id(value) for value in first.objects.values()}
        return [
            f"{path} is copied after Loop(...): a restart copies what was restored; copy it before,"
            f" or pass Loop(..., {path}={path})"
            for path, value in self.objects.items()
            if isinstance(value, torch.nn.Module) and id(value) not in before and self._states[path] in states
        ]

    def _know(self, value: Any, depth: int) -> None:
        if id(value) in self._known_ids or isinstance(value, (*_LEAVES, *_CODE)) or depth >= _MAX_DEPTH:
            return
        self._known_ids.add(id(value))
        if isinstance(value, torch.nn.Module):
            self._known_ids |= {id(module) for module in value.modules()}
        for _, inner in generators.inner_of(value):
            self._know(inner, depth + 1)

    def _collect(self, path: str, value: Any, depth: int, seen_ids: set[int], *, is_own: bool) -> None:
        if type(value).__module__.startswith("spot_training."):
            return
        if is_own and id(value) not in self._known_ids and (marked := _mark(value)) is not None:
            self.values.setdefault(path, marked)
        if isinstance(value, DataLoader):
            drawn = generators.generators_of(value.dataset).items()
            self.objects |= {
                f"{path}.dataset.{name}": item for name, item in drawn if id(item) not in seen_ids
            }
        if id(value) in seen_ids or isinstance(value, _LEAVES) or depth > _MAX_DEPTH:
            return
        kind = value if isinstance(value, (type, FunctionType)) else type(value)
        if kind is value and _is_installed(kind):
            return
        seen_ids.add(id(value))
        inner = list(generators.inner_of(value))
        if isinstance(value, _KINDS) or generators.is_generator(value):
            is_wrapper = isinstance(value, (Optimizer, torch.nn.Module)) and any(
                id(item) in self._known_ids and isinstance(item, type(value).__mro__[-2]) for _, item in inner
            )
            if isinstance(value, torch.nn.Module):
                seen_ids |= {id(module) for module in value.modules()}
                is_wrapper |= any(id(module) in self._known_ids for module in value.modules())
            if not is_wrapper:
                self.objects[path] = value
                for name, item in attributes.plain(value, torch.Tensor).items():
                    self.values.setdefault(f"{path}.{name}", _mark(item))
            return
        is_plain = kind in (*_PLAIN, MethodType, partial) or isinstance(value, Dataset)
        is_own = is_own and (is_plain or not _is_installed(kind))
        for name, item in inner:
            self._collect(f"{path}.{name}", item, depth + 1, seen_ids, is_own=is_own and name[:2] != "__")


def truncated_logs() -> list[str]:
    """Return the paths of open files that another start would empty."""
    handles = [item for item in gc.get_objects() if type(item) is io.TextIOWrapper and not item.closed]
    names = [item.name for item in handles if getattr(item, "mode", "") in ("w", "wt", "w+")]
    return sorted({name for name in map(str, names) if Path(name).is_file()})


def _variables(*, has_modules: bool) -> Iterator[tuple[str, Any]]:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        is_own = not str(frame.f_globals.get("__name__")).startswith("spot_training.")
        if is_own and not frame.f_code.co_filename.startswith(("<frozen", *_INSTALLED)):
            yield from list(frame.f_locals.items())
            yield from list(frame.f_globals.items())
        frame = frame.f_back
    main = sys.modules["__main__"]
    yield from list(vars(main).items())
    folder = str(Path(getattr(main, "__file__", None) or "/nowhere/main").parent)
    for module in list(sys.modules.values()) if has_modules else ():  # the script's own
        file = getattr(module, "__file__", None) or ""
        if file.startswith(f"{folder}/") and not file.startswith(_INSTALLED) and module is not main:
            name = module.__name__.rpartition(".")[2]
            yield from [(f"{name}.{key}", value) for key, value in vars(module).items() if key[0] != "_"]


def _is_installed(kind: Any) -> bool:
    file = getattr(sys.modules.get(kind.__module__), "__file__", None) or ""
    return not file or file.startswith(_INSTALLED)


def _progress(iterator: Any, depth: int = _MAX_DEPTH) -> Any:
    """Return something that changes with what an iterator has yielded; None of one that reads a ``Loop``."""
    inner = [item for item in gc.get_referents(iterator) if item is not iterator]
    inner += [value for item in inner if type(item) is tuple for value in item]
    result: list[Any] = [repr(iterator) if type(iterator) is count else length_hint(iterator)]
    result += [getattr(iterator, "_num_yielded", None), *(len(item) for item in inner if type(item) is list)]
    for item in inner:
        if type(item).__module__ in _OF_LOOP:
            return None
        if isinstance(item, (bool, int, float, str)):  # a generator's variables
            result.append(item)
        elif isinstance(item, Iterator) and not isinstance(item, io.IOBase) and depth:
            result.append(before := _progress(item, depth - 1))
            if before is None:
                return None
    return result


def _mark(value: Any) -> Any:
    """Return something that changes with a value; None: it is not compared."""
    if isinstance(value, (Mapping, list, tuple, set, deque)):
        return len(value), mark(list(value) if isinstance(value, (set, deque)) else value)
    if isinstance(value, torch.Tensor):
        return (version(value), mark(value)) if _is_readable(value) else None
    if isinstance(value, Iterator) and not isinstance(value, io.IOBase):
        return _progress(value)
    is_array = hasattr(type(value), "ravel") and hasattr(type(value), "dtype")
    return mark(value) if is_array or isinstance(value, (bool, int, float, str)) else None


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
    tensors = [getattr(item, "_local_tensor", item) for item in (*value.parameters(), *value.buffers())]
    return [item.detach().flatten()[:8].tolist() for item in tensors[:_MAX_TENSORS] if _is_readable(item)]


def _is_readable(tensor: Any) -> bool:
    is_plain = type(tensor) in (torch.Tensor, torch.nn.Parameter)
    return is_plain and tensor.layout == torch.strided and not tensor.is_meta
