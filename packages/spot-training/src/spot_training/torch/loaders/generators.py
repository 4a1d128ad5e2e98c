"""Random number generators that a dataset, a transform or a script has of its own: found, saved, seeded."""

from __future__ import annotations

import contextlib
import json
import random
import sys
from collections.abc import Iterator, Mapping
from functools import partial
from types import BuiltinMethodType, FunctionType, MethodType, ModuleType
from typing import Any, Final

import torch

_MAX_DEPTH: Final = 7
MAX_ITEMS: Final = 64
"""A longer list is one of samples."""
_LEAVES: Final = (str, bytes, bool, int, float, complex, torch.Tensor, type, ModuleType)


def is_generator(value: Any) -> bool:
    """Return whether this is a generator of Python, NumPy or PyTorch."""
    return type(value) in (random.Random, torch.Generator) or type(value) in _of_numpy()


def generators_of(owner: Any) -> dict[str, Any]:
    """Return the generators that an object has, by the path of attributes, and those of its module."""
    result, seen_ids = dict[str, Any](), set[int]()
    module = getattr(sys.modules.get(type(owner).__module__), "__dict__", {})
    for name, value in (*module.items(), *inner_of(owner)):
        _collect(value, name, 0, result, seen_ids, is_global=module.get(name) is value)
    return result


def states(owner: Any) -> dict[str, str]:
    """Return the states of an object's generators, as JSON, by path."""
    return {path: state_of(generator) for path, generator in generators_of(owner).items()}


def set_states(owner: Any, saved: Mapping[str, str]) -> None:
    """Set the states of an object's generators; one that is no longer there is left out."""
    for path, generator in generators_of(owner).items():
        if path in saved:
            set_state(generator, saved[path])


def seed(generator: Any, number: int) -> None:
    """Seed a generator."""
    if type(generator) is random.Random:
        generator.seed(number)
    elif type(generator) is torch.Generator:
        generator.manual_seed(number % 2**63)
    elif hasattr(generator, "bit_generator"):
        generator.bit_generator.state = type(generator.bit_generator)(number).state
    else:
        generator.seed(number % 2**32)


def state_of(generator: Any) -> str:
    """Return the state of a generator as JSON."""
    if type(generator) is random.Random:
        return json.dumps(generator.getstate())
    if type(generator) is torch.Generator:
        return json.dumps(generator.get_state().tolist())
    state = generator.bit_generator.state if hasattr(generator, "bit_generator") else generator.get_state()
    return json.dumps(state, default=lambda array: array.tolist())


def set_state(generator: Any, saved: str) -> None:
    """Set what ``state_of`` returned."""
    state = json.loads(saved)
    if type(generator) is random.Random:
        version, numbers, gauss = state
        generator.setstate((version, tuple(numbers), gauss))
    elif type(generator) is torch.Generator:
        generator.set_state(torch.tensor(state, dtype=torch.uint8))
    elif hasattr(generator, "bit_generator"):
        generator.bit_generator.state = _with_arrays(state)
    else:
        generator.set_state(tuple(state))


class GeneratorPart:
    """A generator as a part of ``Loop``."""

    def __init__(self, generator: Any) -> None:
        self.generator = generator

    def state_dict(self) -> dict[str, str]:
        """Return the state."""
        return {"state": state_of(self.generator)}

    def load_state_dict(self, state: Mapping[str, str]) -> None:
        """Set the state."""
        set_state(self.generator, state["state"])


def _of_numpy() -> tuple[type, ...]:
    numpy = sys.modules.get("numpy")
    return () if numpy is None else (numpy.random.Generator, numpy.random.RandomState)


def _with_arrays(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _with_arrays(inner) for key, inner in value.items()}
    return sys.modules["numpy"].array(value, dtype="uint64") if isinstance(value, list) else value


def _collect(
    value: Any, path: str, depth: int, result: dict[str, Any], seen_ids: set[int], *, is_global: bool = False
) -> None:
    if id(value) in seen_ids or isinstance(value, _LEAVES) or depth > _MAX_DEPTH:
        return
    if is_generator(value):
        seen_ids.add(id(value))
        result[path] = value
    elif not is_global:  # of a module's globals only generators themselves
        seen_ids.add(id(value))
        for name, inner in inner_of(value):
            _collect(inner, f"{path}.{name}", depth + 1, result, seen_ids)
        if isinstance(value, FunctionType):
            for name in value.__code__.co_names:
                _collect(value.__globals__.get(name), name, depth + 1, result, seen_ids, is_global=True)


def inner_of(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield what an object refers to by attributes, slots, items or a function's variables."""
    if isinstance(value, (MethodType, BuiltinMethodType)):
        yield "__self__", value.__self__
    elif isinstance(value, partial):
        yield from (("func", value.func), ("args", value.args), ("keywords", value.keywords))
    elif isinstance(value, FunctionType):
        for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=False):
            with contextlib.suppress(ValueError):  # not set yet
                yield name, cell.cell_contents
        yield from list(vars(value).items())
    elif isinstance(value, Mapping):
        if len(value) <= MAX_ITEMS:
            yield from ((str(key), inner) for key, inner in value.items())
    elif isinstance(value, (list, tuple)):
        if len(value) <= MAX_ITEMS:
            yield from ((str(number), inner) for number, inner in enumerate(value))
    else:
        yield from list(getattr(value, "__dict__", {}).items())
        for kind in type(value).__mro__:
            slots = vars(kind).get("__slots__", ())
            names = (slots,) if isinstance(slots, str) else tuple(slots)
            yield from ((name, getattr(value, name)) for name in names if hasattr(value, name))
