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
    for name in saved.keys() & {"numpy", "torch"}:
        try:
            package = importlib.import_module(name)
        except ImportError:
            say(f"{folder}: {name} is not installed: its random number state is not resumed")
            continue
        if name == "numpy":
            package.random.set_state(tuple(saved["numpy"]))
            continue
        texts = [saved["torch"], *saved.get("cuda", [])]
        cpu, *gpus = (package.tensor(list(bytes.fromhex(text)), dtype=package.uint8) for text in texts)
        package.set_rng_state(cpu)
        for number, gpu in enumerate(gpus[: package.cuda.device_count()]):
            package.cuda.set_rng_state(gpu, number)
