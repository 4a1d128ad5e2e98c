"""The state of a Keras training between two batches, as files."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import count, takewhile, zip_longest
from pathlib import Path
from typing import Any

import keras
import numpy as np

from spot_training import randomness
from spot_training.errors import MismatchError

_VARIABLES = "variables.npz"
_STATE = "state.json"


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
    """Return the variables of layers (with seeds), optimizer and metrics, each once."""
    all_variables = [*model.variables, *model.optimizer.variables, *model.metrics_variables]
    return list({id(variable): variable for variable in all_variables}.values())


def write(
    folder: Path,
    model: Any,
    position: BatchPosition,
    callbacks: Sequence[Any],
    generators: Sequence[Any],
    numbers: str | None,
) -> None:
    """Write the state to an empty directory; ``generators``: ``torch_generators`` after the last batch.

    ``numbers``: ``randomness.state`` before a validation that is repeated; None: the present one.
    """
    set_torch_generators(generators)  # a validation's loader has drawn since
    current, scalars = variables(model), []
    arrays: dict[str, Any] = {f"variable-{number}": array_of(entry) for number, entry in enumerate(current)}
    for number, callback in enumerate(callbacks):
        counters, lists = _counters(callback)
        scalars.append({"class": type(callback).__name__, "values": counters, "lists": list(lists)})
        for name, values in lists.items():
            arrays |= {f"callback-{number}-{name}-{index}": value for index, value in enumerate(values)}
    body = {
        "position": asdict(position),
        "variables": [_described(variable) for variable in current],
        "callbacks": scalars,
        "keras": array_of(_global_seed()).tolist(),
    }
    np.savez(folder / _VARIABLES, **arrays)
    (folder / _STATE).write_text(json.dumps(body))
    (folder / randomness.FILE).write_text(numbers or randomness.state())


def position(folder: Path) -> BatchPosition:
    """Return the position of the state in a directory."""
    return BatchPosition(**json.loads((folder / _STATE).read_text())["position"])


def variable_count(folder: Path) -> int:
    """Return the number of variables in the state in a directory."""
    return len(json.loads((folder / _STATE).read_text())["variables"])


def read(folder: Path, model: Any, callbacks: Sequence[Any]) -> None:
    """Load model, callbacks and generators; ``MismatchError`` names the first other variable."""
    body = json.loads((folder / _STATE).read_text())
    current = variables(model)
    for saved, expected in zip_longest(body["variables"], map(_described, current), fillvalue="nothing"):
        if saved != expected:
            raise MismatchError(f"{folder} is of another model: {saved} where this one has {expected}")
    with np.load(folder / _VARIABLES) as arrays:
        for number, variable in enumerate(current):
            array = arrays[f"variable-{number}"]
            # Types unknown to NumPy files, such as bfloat16, load as raw bytes.
            variable.assign(array.view(array_of(variable).dtype) if array.dtype.kind == "V" else array)
        for number, (callback, entry) in enumerate(zip(callbacks, body["callbacks"], strict=False)):
            if entry["class"] == type(callback).__name__:
                vars(callback).update(entry["values"])
                for name in entry["lists"]:
                    names = (f"callback-{number}-{name}-{index}" for index in count())
                    setattr(callback, name, [arrays[key] for key in takewhile(arrays.__contains__, names)])
    randomness.restore(folder)
    seed = _global_seed()
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


def _counters(callback: Any) -> tuple[dict[str, Any], dict[str, list[Any]]]:
    """Return a callback's plain values (``EarlyStopping.wait``, …) and its lists of arrays."""
    values, lists = {}, {}
    for name, value in vars(callback).items():
        if name.startswith("_") or name == "params":  # those are of this call of ``fit``
            continue
        if isinstance(value, np.generic):
            value = value.item()
        if isinstance(value, list) and value and all(isinstance(item, np.ndarray) for item in value):
            lists[name] = value
        elif _is_plain(value):
            values[name] = value
    return values, lists


def _is_plain(value: Any) -> bool:
    """Return whether JSON has a value as it is: numbers, texts, and lists and mappings of them."""
    try:
        again = json.loads(json.dumps(value))
        return bool(again == value or repr(again) == repr(value))  # not a number is unequal to itself
    except (TypeError, ValueError, RecursionError):
        return False


def _global_seed() -> Any:
    """Return the state of ``keras.random`` without a seed, a variable; Keras has no public API for it."""
    from keras.src.random.seed_generator import global_seed_generator

    return global_seed_generator().state
