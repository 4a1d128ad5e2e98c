"""What the callbacks of a framework's trainer hold: public plain values, tensors and modules."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from spot_training.attributes import plain
from spot_training.errors import say
from spot_training.torch.growth import placed
from spot_training.torch.loaders.samples import digest


def marks(callbacks: Sequence[Any], model: torch.nn.Module) -> dict[str, str]:
    """Return digests of the modules that callbacks hold at the start, such as averages of the weights.

    Of the first tensor of each: a step changes it, and a module may be as large as the model.
    """
    return {key: _mark(module) for key, module in _modules(callbacks, model)}


def take(callbacks: Sequence[Any], model: torch.nn.Module, first: Mapping[str, str]) -> dict[str, Any]:
    """Return references to the values of callbacks; of modules those that differ from ``first``, `marks`."""
    changed = [(key, module) for key, module in _modules(callbacks, model) if _mark(module) != first.get(key)]
    return {
        "values": [[type(owner).__qualname__, plain(owner, torch.Tensor)] for owner in callbacks],
        "modules": {key: module.state_dict() for key, module in changed},
    }


def restore(callbacks: Sequence[Any], model: torch.nn.Module, saved: Mapping[str, Any]) -> None:
    """Set what `take` returned, where the class is the same; a line names modules that do not exist yet."""
    for owner, (kind, values) in zip(callbacks, saved["values"], strict=False):
        if type(owner).__qualname__ == kind:
            now = vars(owner)
            now.update({name: placed(value, now.get(name)) for name, value in values.items()})
    modules = dict(_modules(callbacks, model))
    for key, state in saved["modules"].items():
        if key in modules:
            modules[key].load_state_dict(state)
        else:
            say(f"not resumed: {key}, which the callback makes after the epoch's begin")


def _modules(callbacks: Sequence[Any], model: torch.nn.Module) -> Iterator[tuple[str, torch.nn.Module]]:
    """Yield the modules that callbacks hold, but the model, what wraps it and its own."""
    parameters = set(map(id, model.parameters()))
    for number, callback in enumerate(callbacks):
        for name, value in list(getattr(callback, "__dict__", {}).items()):
            if isinstance(value, torch.nn.Module) and parameters.isdisjoint(map(id, value.parameters())):
                yield f"{type(callback).__qualname__}[{number}].{name}", value


def _mark(module: torch.nn.Module) -> str:
    return digest(next(iter(module.state_dict().values()), None))
