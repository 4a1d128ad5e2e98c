"""The random number state of Python, NumPy and PyTorch in a checkpoint of ``Spot``."""

from __future__ import annotations

import importlib
import json
import random
import sys
from pathlib import Path
from typing import Any, Final

from spot_training.errors import say

FILE: Final = ".randomness.json"


def state() -> str:
    """Return the state of the generators that a script draws from without naming one, as JSON."""
    version, numbers, gauss = random.getstate()
    result: dict[str, Any] = {"python": [version, list(numbers), gauss]}
    if (numpy := sys.modules.get("numpy")) is not None:
        name, keys, *rest = numpy.random.get_state()
        result["numpy"] = [name, keys.tolist(), *rest]
    if (torch := sys.modules.get("torch")) is not None and hasattr(torch, "get_rng_state"):
        result["torch"] = bytes(torch.get_rng_state().tolist()).hex()
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            result["cuda"] = [bytes(device.tolist()).hex() for device in torch.cuda.get_rng_state_all()]
    return json.dumps(result)


def restore(folder: Path) -> None:
    """Set the state that a checkpoint has; a generator whose package is not installed is said."""
    try:
        saved = json.loads((folder / FILE).read_text())
    except FileNotFoundError:  # of an earlier version, or of fewer ranks
        return
    version, numbers, gauss = saved["python"]
    random.setstate((version, tuple(numbers), gauss))
    for name, put in (("numpy", _put_numpy), ("torch", _put_torch)):
        if name in saved:
            try:
                put(importlib.import_module(name), saved)
            except ImportError:
                say(f"{folder}: {name} is not installed: its random number state is not resumed")


def _put_numpy(numpy: Any, saved: dict[str, Any]) -> None:
    name, keys, *rest = saved["numpy"]
    numpy.random.set_state((name, keys, *rest))


def _put_torch(torch: Any, saved: dict[str, Any]) -> None:
    torch.set_rng_state(torch.tensor(list(bytes.fromhex(saved["torch"])), dtype=torch.uint8))
    if torch.cuda.is_available():
        for number, text in enumerate(saved.get("cuda", [])[: torch.cuda.device_count()]):
            torch.cuda.set_rng_state(torch.tensor(list(bytes.fromhex(text)), dtype=torch.uint8), number)
