"""What differs between the newest checkpoints of two runs, by value: a file's bytes may differ by chance."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

_LEFT_OUT: Final = ("manifest.json", "training_args.bin", ".randomness.json")
_UNSEEDED: Final = ("randomness.python", "randomness.numpy", "rng_state")
"""Random numbers that a script may leave without a seed; if it uses them, something else differs, too."""
_TORCH: Final = (".pt", ".pth", ".ckpt", ".bin")
_MAX_NAMED: Final = 3


def differences(first: Path, second: Path) -> list[str]:
    """Return which values differ, at most three of each file."""
    whole, two = (_newest(folder / "checkpoints") for folder in (first, second))
    if not whole or whole.keys() != two.keys():
        uninterrupted, restarted = (", ".join(names) or "none" for names in (whole, two))
        return [f"the newest checkpoints: {uninterrupted}, after the restart {restarted}"]
    result = []
    for name in whole:
        files, twins = _files(whole[name]), _files(two[name])
        for path in sorted({*files, *twins}):
            if path not in files or path not in twins:
                result.append(f"{path} is in one only")
                continue
            before = dict(_flat(_read(files[path]), str(first)))
            after = dict(_flat(_read(twins[path]), str(second)))
            keys = [key for key in {**before, **after} if before.get(key) != after.get(key)]
            if keys := [key for key in keys if not any(name in f"{path} {key}" for name in _UNSEEDED)]:
                more = ", …" if len(keys) > _MAX_NAMED else ""
                result.append(f"{path} {', '.join(keys[:_MAX_NAMED])}{more}")
    return result


def _newest(folder: Path) -> dict[str, Path]:
    """Return the newest checkpoint of each training, by its name and step."""
    result: dict[str, Path] = {}
    for path in sorted(folder.rglob("step-*")):
        if path.is_dir() and not any(part.startswith(".") for part in path.relative_to(folder).parts):
            result[str(path.parent.relative_to(folder))] = path
    return {f"{name} {path.name}": path for name, path in result.items()}


def _files(folder: Path) -> dict[str, Path]:
    return {
        str(path.relative_to(folder)): path
        for path in folder.rglob("*")
        if path.is_file() and path.name not in _LEFT_OUT
    }


def _read(path: Path) -> Any:
    if path.suffix == ".json":
        return json.loads(path.read_text())
    try:
        if path.suffix in _TORCH:
            return importlib.import_module("spot_training.torch.state").read(path)
        if path.suffix == ".npz":
            with importlib.import_module("numpy").load(path, allow_pickle=False) as arrays:
                return {name: arrays[name] for name in arrays.files}
    except Exception:
        return path.read_bytes()  # of a type that is not loaded, or the package is not installed here
    return path.read_bytes()


def _flat(value: Any, folder: str, key: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values by their path; the run's own folder is none."""
    if isinstance(value, (Mapping, list, tuple)):
        for name, inner in value.items() if isinstance(value, Mapping) else enumerate(value):
            yield from _flat(inner, folder, f"{key}.{name}" if key else str(name))
    elif hasattr(value, "tobytes") or hasattr(value, "numpy"):
        array = value.detach().cpu() if hasattr(value, "detach") else value
        content = array.flatten().tolist() if hasattr(array, "flatten") else array.tolist()
        yield key, f"{array.dtype} {tuple(array.shape)} {content}"
    elif not any(word in key for word in ("time", "second", "runtime")):
        yield key, str(value).replace(folder, "…") if isinstance(value, str) else repr(value)
