"""All that a Keras training is between two batches, as files."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from spot_training.errors import MismatchError

_VARIABLES = "variables.npz"
_STATE = "state.json"


@dataclass(frozen=True)
class BatchPosition:
    """Where a training is. ``batch`` batches of ``epoch`` are done; all of them: its validation is not."""

    epoch: int = 0
    batch: int = 0
    stopped: bool = False
    """A callback has ended it early: nothing is left to train."""
    data: Sequence[int] = ()
    """``Batches.identity``."""
    log: int = 0
    """``TrainingLog.position``."""
    logs: Mapping[str, float] = field(default_factory=dict)
    """The epoch's metrics so far."""


def variables(model: Any) -> list[Any]:
    """Return the weights, the seeds of random layers, the optimizer's state and the metrics', each once."""
    found = [*model.variables, *model.optimizer.variables, *model.metrics_variables]
    return list({id(one): one for one in found}.values())


def write(folder: Path, model: Any, position: BatchPosition, callbacks: Sequence[Any]) -> None:
    """Write the state into an empty folder."""
    arrays: dict[str, Any] = {
        f"variable-{number}": np.asarray(one.value) for number, one in enumerate(variables(model))
    }
    scalars = []
    for number, callback in enumerate(callbacks):
        kept, lists = _counters(callback)
        scalars.append({"class": type(callback).__name__, "values": kept, "lists": list(lists)})
        for name, values in lists.items():
            arrays |= {f"callback-{number}-{name}-{place}": value for place, value in enumerate(values)}
    algorithm, keys, *rest = np.random.get_state()
    arrays["numpy"] = keys
    body = {
        "position": asdict(position),
        "variables": [_described(one) for one in variables(model)],
        "callbacks": scalars,
        "random": {
            "python": random.getstate(),
            "numpy": [algorithm, *rest],
            "keras": _global_seed().tolist(),
        },
    }
    np.savez(folder / _VARIABLES, **arrays)
    (folder / _STATE).write_text(json.dumps(body))


def position(folder: Path) -> BatchPosition:
    """Return where the state in a folder is."""
    return BatchPosition(**json.loads((folder / _STATE).read_text())["position"])


def read(folder: Path, model: Any, callbacks: Sequence[Any]) -> None:
    """Put the state into a model that is built, into its callbacks and into the random generators.

    ``MismatchError`` names the first variable that differs from the model's.
    """
    body = json.loads((folder / _STATE).read_text())
    mine = variables(model)
    for number, one in enumerate(mine):
        saved = body["variables"][number] if number < len(body["variables"]) else "nothing"
        if saved != _described(one):
            raise MismatchError(f"{folder} is of another model: {saved} where this one has {_described(one)}")
    if len(body["variables"]) > len(mine):
        raise MismatchError(
            f"{folder} is of another model: {len(body['variables'])} variables, this one has {len(mine)}"
        )
    with np.load(folder / _VARIABLES) as arrays:
        for number, one in enumerate(mine):
            one.assign(_as(arrays[f"variable-{number}"], one))
        for number, (callback, kept) in enumerate(zip(callbacks, body["callbacks"], strict=False)):
            if kept["class"] == type(callback).__name__:
                vars(callback).update(kept["values"])
                for name in kept["lists"]:
                    setattr(callback, name, list(_several(arrays, f"callback-{number}-{name}-")))
        numpy_keys = arrays["numpy"]
    version, internal, gauss = body["random"]["python"]
    random.setstate((version, tuple(internal), gauss))
    algorithm, *rest = body["random"]["numpy"]
    np.random.set_state((algorithm, numpy_keys, *rest))
    _global_seed_variable().assign(np.asarray(body["random"]["keras"], _global_seed().dtype))


def metrics(model: Any) -> list[Any]:
    """Return copies of the metrics' values, which Keras resets when an epoch begins."""
    return [np.asarray(one.value) for one in model.metrics_variables]


def _described(variable: Any) -> str:
    # Keras numbers layers by how many this process has made: that is no difference.
    return f"{re.sub(r'_[0-9]+', '', variable.name)} {tuple(variable.shape)} {variable.dtype}"


def _as(array: Any, variable: Any) -> Any:
    """Undo what NumPy's files do to types it does not know, such as bfloat16: they come back as raw bytes."""
    return array.view(np.asarray(variable.value).dtype) if array.dtype.kind == "V" else array


def _counters(callback: Any) -> tuple[dict[str, Any], dict[str, list[Any]]]:
    """Return what a callback counts (``EarlyStopping.wait``, …) and the lists of arrays that it keeps."""
    kept, lists = {}, {}
    for name, value in vars(callback).items():
        if name.startswith("_"):
            continue
        if isinstance(value, np.generic):
            value = value.item()
        if value is None or isinstance(value, (bool, int, float, str)):
            kept[name] = value
        elif isinstance(value, list) and value and all(isinstance(one, np.ndarray) for one in value):
            lists[name] = value
    return kept, lists


def _several(arrays: Any, prefix: str) -> Iterator[Any]:
    number = 0
    while f"{prefix}{number}" in arrays:
        yield arrays[f"{prefix}{number}"]
        number += 1


def _global_seed_variable() -> Any:
    """Return the state behind ``keras.random`` without a seed; Keras has no public name for it."""
    from keras.src.random.seed_generator import global_seed_generator

    return global_seed_generator().state


def _global_seed() -> Any:
    return np.asarray(_global_seed_variable().value)
