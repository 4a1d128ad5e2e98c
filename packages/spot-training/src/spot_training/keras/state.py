"""The state of a Keras training between two batches, as files."""

from __future__ import annotations

import contextlib
import json
import re
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final

import keras
import numpy as np

from spot_training import randomness
from spot_training.errors import MismatchError

_VARIABLES = "variables.npz"
_STATE = "state.json"
_KINDS: Final = {kind.__name__: kind for kind in (list, tuple, set, dict, deque)}


@dataclass(frozen=True)
class BatchPosition:
    """The position of a training: ``batch`` batches of ``epoch`` are done, but not its validation."""

    epoch: int = 0
    batch: int = 0
    stopped: bool = False
    """A callback has ended the training early."""
    data: Sequence[int] = ()
    """``Batches.identity``."""
    log: int = 0
    """``TrainingLog.position``."""
    logs: Mapping[str, float] = field(default_factory=dict)
    """The epoch's metrics so far."""


def variables(model: Any) -> list[Any]:
    """Return the variables of layers (with seeds), optimizers and metrics, each once."""
    of_optimizers = [variable for _, optimizer in optimizers(model) for variable in optimizer.variables]
    all_variables = [*model.variables, *of_optimizers, *model.metrics_variables]
    return list({id(variable): variable for variable in all_variables}.values())


def optimizers(model: Any) -> list[tuple[str, Any]]:
    """Return the optimizers by name: the model's, and those that its own ``train_step`` uses."""
    named = [("optimizer", model.optimizer), *vars(model).items()]
    return [(name, value) for name, value in named if isinstance(value, keras.optimizers.Optimizer)]


def write(
    folder: Path,
    model: Any,
    position: BatchPosition,
    callbacks: Sequence[Any],
    generators: Sequence[Any],
    numbers: str | None,
    seed: Any,
) -> None:
    """Write the state to an empty directory; ``generators``: ``torch_generators`` after the last batch.

    ``numbers``: ``randomness.state`` before a validation that is repeated, or None; ``seed``: `global_seed`.
    """
    set_torch_generators(generators)  # a validation's loader has drawn since
    current, scalars = variables(model), []
    arrays: dict[str, Any] = {f"variable-{number}": array_of(entry) for number, entry in enumerate(current)}
    for callback in callbacks:
        scalars.append({"class": type(callback).__name__, "state": _values(callback, arrays)})
    body = {
        "position": asdict(position),
        "variables": [_described(variable) for variable in current],
        "callbacks": scalars,
        "keras": array_of(seed).tolist(),
    }
    np.savez(folder / _VARIABLES, **arrays)
    (folder / _STATE).write_text(json.dumps(body))
    (folder / randomness.FILE).write_text(numbers or randomness.state())


def stored(folder: Path) -> Any:
    """Return the state in a directory without its arrays."""
    return json.loads((folder / _STATE).read_text())


def read(folder: Path, model: Any, callbacks: Sequence[Any]) -> None:
    """Load model, callbacks and generators; ``MismatchError`` names the first other variable."""
    body, current = stored(folder), variables(model)
    for saved, expected in zip_longest(body["variables"], map(_described, current), fillvalue="nothing"):
        if saved != expected:
            raise MismatchError(f"{folder} is of another model: {saved} where this one has {expected}")
    with np.load(folder / _VARIABLES) as arrays:
        for number, variable in enumerate(current):
            array = arrays[f"variable-{number}"]
            # Types unknown to NumPy files, such as bfloat16, load as raw bytes.
            variable.assign(array.view(array_of(variable).dtype) if array.dtype.kind == "V" else array)
        for callback, entry in zip(callbacks, body["callbacks"], strict=False):
            if entry["class"] == type(callback).__name__:
                values = entry["state"].items()
                vars(callback).update((name, _decoded(value, arrays)) for name, value in values)
    randomness.restore(folder)
    seed = global_seed()
    seed.assign(np.asarray(body["keras"], array_of(seed).dtype))


def array_of(variable: Any) -> Any:
    """Return a copy of a variable's value: PyTorch's would share its memory, or require gradients."""
    return np.array(keras.ops.convert_to_numpy(variable.value))


def torch_generators() -> list[Any]:
    """Return the states of PyTorch's generators, which a dropout draws from; empty on another backend."""
    if keras.backend.backend() != "torch":
        return []
    torch = sys.modules["torch"]
    gpu = [torch.cuda.get_rng_state()] if torch.cuda.is_available() else []
    return [generator.numpy() for generator in (torch.get_rng_state(), *gpu)]


def set_torch_generators(generators: Sequence[Any]) -> None:
    """Restore what ``torch_generators`` returned."""
    if generators and keras.backend.backend() == "torch":
        torch = sys.modules["torch"]
        torch.set_rng_state(torch.from_numpy(generators[0]))
        if len(generators) > 1 and torch.cuda.is_available():
            torch.cuda.set_rng_state(torch.from_numpy(generators[1]))


def _described(variable: Any) -> str:
    # Keras numbers layers by creation in this process: ignore the number.
    return f"{re.sub(r'_[0-9]+', '', variable.name)} {tuple(variable.shape)} {variable.dtype}"


def _values(callback: Any, arrays: dict[str, Any]) -> dict[str, Any]:
    """Return a callback's values (``EarlyStopping.wait``, …) as JSON; private ones of Keras's own are not."""
    result, bases = {}, set(type(callback).__mro__) - {keras.callbacks.Callback}
    is_of_keras = any(base.__module__.startswith("keras.") for base in bases)
    for name, value in vars(callback).items():
        if name not in ("_model", "params") and not (is_of_keras and name.startswith("_")):
            with contextlib.suppress(TypeError, RecursionError):
                result[name] = _encoded(value, arrays)
    return result


def _encoded(value: Any, arrays: dict[str, Any]) -> Any:
    """Return numbers, texts, arrays and collections of them as JSON, arrays in ``arrays``; ``TypeError``."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        arrays[key := f"callback-{len(arrays)}"] = value
        return {"array": key}
    if type(value) not in _KINDS.values():
        raise TypeError(type(value).__name__)
    items = [_encoded(item, arrays) for item in (value.items() if isinstance(value, dict) else value)]
    return {type(value).__name__: items, "maxlen": getattr(value, "maxlen", None)}


def _decoded(value: Any, arrays: Mapping[str, Any]) -> Any:
    if not isinstance(value, dict):
        return value
    if "array" in value:
        return arrays[value["array"]]
    [(kind, items), (_, maxlen)] = value.items()
    content = [_decoded(item, arrays) for item in items]
    return deque(content, maxlen) if kind == "deque" else _KINDS[kind](content)


def global_seed() -> Any:
    """Return the state of ``keras.random`` without a seed, a variable, which each thread has of its own."""
    from keras.src.random.seed_generator import global_seed_generator

    return global_seed_generator().state
