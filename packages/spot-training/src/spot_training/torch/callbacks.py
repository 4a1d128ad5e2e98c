"""What the callbacks of a framework's trainer hold: plain values, tensors and modules."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import torch

from spot_training.attributes import plain
from spot_training.errors import say
from spot_training.torch.growth import placed
from spot_training.torch.loaders.samples import digest

_FRAMEWORKS: Final = ("transformers.", "lightning.", "pytorch_lightning.", "spot_training.", "types.")


def marks(callbacks: Sequence[Any], model: torch.nn.Module) -> dict[str, str]:
    """Return digests of the modules and private values that callbacks hold at the start.

    Of a module's first tensor: a step changes it, and a module may be as large as the model.
    """
    private = {f"{number}.{name}": digest(value) for number, name, value in _private(callbacks)}
    return private | {key: _mark(module) for key, module in _modules(callbacks, model)}


def take(callbacks: Sequence[Any], model: torch.nn.Module, first: Mapping[str, str]) -> dict[str, Any]:
    """Return references to public values, and to modules and private values unlike ``first``, `marks`."""
    values = [plain(owner, torch.Tensor) for owner in callbacks]
    for number, name, value in _private(callbacks):
        if digest(value) != first.get(f"{number}.{name}"):
            values[number][name] = value
    changed = [(key, module) for key, module in _modules(callbacks, model) if _mark(module) != first.get(key)]
    return {
        "values": [[type(owner).__qualname__, now] for owner, now in zip(callbacks, values, strict=True)],
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


def _private(callbacks: Sequence[Any]) -> Iterator[tuple[int, str, Any]]:
    """Yield private numbers, texts, tensors and collections of scripts' own callbacks, by number.

    Flags and None often say that a file or a logger is not open yet, which each process opens.
    """
    for number, callback in enumerate(callbacks):
        kinds = [
            kind for kind in type(callback).__mro__ if kind.__name__ not in ("Callback", "TrainerCallback")
        ]
        if not any(f"{kind.__module__}.".startswith(_FRAMEWORKS) for kind in kinds):
            for name, value in plain(callback, torch.Tensor, is_private=True).items():
                if not isinstance(value, bool | None):
                    yield number, name, value


def _modules(callbacks: Sequence[Any], model: torch.nn.Module) -> Iterator[tuple[str, torch.nn.Module]]:
    """Yield the modules that callbacks hold, but the model, what wraps it and its own."""
    parameters = set(map(id, model.parameters()))
    for number, callback in enumerate(callbacks):
        for name, value in list(getattr(callback, "__dict__", {}).items()):
            if isinstance(value, torch.nn.Module) and parameters.isdisjoint(map(id, value.parameters())):
                yield f"{type(callback).__qualname__}[{number}].{name}", value


def _mark(module: torch.nn.Module) -> str:
    return digest(next(iter(module.state_dict().values()), None))
