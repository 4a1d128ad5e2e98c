"""What a loader's samples are, drawn in a process of its own: the training's dataset is not touched."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import torch
from torch.utils.data import DataLoader

from spot_training.errors import MismatchError, say
from spot_training.storage.manifest import Checkpoint
from spot_training.torch import state
from spot_training.torch.loaders.workers import sigterm_blocked

_DRAWN: Final = 8
"""Samples by chance, beside the first and the last."""
_TOLERANCE: Final = 0.02
"""Relative: another processor or decoder changes the last bits of an image."""
_MAX_EXACT: Final = 64
"""Integers of a tensor, such as labels; more are an image."""
_TIMEOUT_SECONDS: Final = 60.0


def draw(
    loader: DataLoader[Any],
    batches: Sequence[list[int]],
    reduce: Callable[[Any], Any],
    seed: int,
    prepare: Callable[[int], object] | None = None,
) -> Any:
    """Return ``reduce(samples)`` of each batch, in a new worker; None if it cannot be drawn there.

    ``prepare``: called in the worker in place of the loader's ``worker_init_fn``. The random number state of
    this process is not changed.
    """
    before = state.randomness()
    try:
        torch.manual_seed(seed)
        with sigterm_blocked():
            fresh: Any = DataLoader(
                loader.dataset,
                batch_sampler=batches,
                num_workers=1,
                collate_fn=reduce,
                worker_init_fn=prepare or loader.worker_init_fn,
                timeout=_TIMEOUT_SECONDS,
                multiprocessing_context="fork",
            )
            return list(fresh)
    except Exception:  # the training itself will say what is wrong with its data, if anything
        return None
    finally:
        state.set_randomness(before)


def signature(loader: DataLoader[Any], length: int, seed: int) -> list[Any] | None:
    """Return ten samples in short, [exact, size] for each, to recognize other data; None if they vary."""
    chance = torch.Generator().manual_seed(seed)
    drawn = torch.randint(length, (_DRAWN,), generator=chance).tolist()
    batches = [[index] for index in (0, length - 1, *drawn)]
    first, second = (draw(loader, batches, _shorten, number) for number in (1, 1))
    return first if first is not None and second is not None and _differing(first, second) == [] else None


def refuse_other_samples(saved: Checkpoint, now: list[Any] | None) -> None:
    """Raise ``MismatchError`` if samples differ from those of a checkpoint inside an epoch; else say it."""
    before = saved.meta.get("samples")
    if not (now and before and len(now) == len(before) and (differing := _differing(before, now))):
        return
    text = (
        f"{len(differing)} of {len(now)} samples differ from those that {saved.path.name} was "
        "trained on: a directory was listed in another order, or labels come from a set; use "
        "sorted(os.listdir(...)), sorted(set(...)) or PYTHONHASHSEED=0; or samples follow from the "
        "model or from random numbers: keep those in loop.state"
    )
    if saved.meta["place"]["batch"]:
        raise MismatchError(f"{saved.path}: {text}")
    say(text)


def digest(value: Any) -> str:
    """Return a hash of a batch or a state: of tensors, arrays and plain values."""
    return hashlib.sha256(b"|".join(_bytes(value))).hexdigest()[:16]


def mark(sample: Any, depth: int = 3) -> bytes:
    """Return some of a sample's values, to compare it with that of another process."""
    if isinstance(sample, Mapping):
        sample = [sample["__key__"]] if "__key__" in sample else list(sample.values())
    if isinstance(sample, (list, tuple)):
        return b"".join(mark(value, depth - 1) for value in sample[:4]) if depth else b""
    if isinstance(sample, torch.Tensor):
        sample = sample.detach().flatten()[:8].tolist()
        return repr(sample).encode()
    if hasattr(sample, "dtype") and hasattr(sample, "ravel"):
        return repr(sample.ravel()[:8].tolist()).encode()
    return (
        repr(sample)[:64].encode() if isinstance(sample, (bool, int, float, str, bytes, type(None))) else b""
    )


def _bytes(value: Any) -> Iterator[bytes]:
    if isinstance(value, torch.Tensor):
        yield f"{value.dtype} {tuple(value.shape)}".encode()
        value = value.detach().cpu().contiguous()
        yield value.flatten().view(torch.uint8).numpy().tobytes() if value.numel() else b""
    elif hasattr(value, "tobytes") and hasattr(value, "dtype"):
        yield f"{value.dtype} {value.shape}".encode() + value.tobytes()
    elif isinstance(value, Mapping):
        for key in value:
            yield repr(key).encode()
            yield from _bytes(value[key])
    elif isinstance(value, (list, tuple)):
        yield b"["
        for inner in value:
            yield from _bytes(inner)
    else:
        plain = isinstance(value, (str, bytes, bool, int, float, type(None)))
        yield repr(value).encode() if plain else type(value).__qualname__.encode()


def _shorten(samples: list[Any]) -> list[Any]:
    exact, sizes = list[bytes](), list[float]()
    _collect(samples[0], exact, sizes)
    size = math.sqrt(sum(value * value for value in sizes))
    return [hashlib.sha256(b"|".join(exact)).hexdigest()[:12], round(size, 6)]


def _collect(value: Any, exact: list[bytes], sizes: list[float]) -> None:
    if hasattr(value, "tobytes") and hasattr(value, "dtype") and not isinstance(value, torch.Tensor):
        try:
            value = torch.as_tensor(value)
        except (TypeError, ValueError):
            value = repr(value)
    if isinstance(value, torch.Tensor):
        exact.append(str(tuple(value.shape)).encode())
        if value.is_floating_point() or value.numel() > _MAX_EXACT:
            numbers = value.detach().double().flatten()
            weights = torch.arange(1.0, numbers.numel() + 1, dtype=torch.float64) / max(1, numbers.numel())
            sizes.append(float((numbers * weights).square().mean().sqrt()) if numbers.numel() else 0.0)
        else:
            exact.append(repr(value.tolist()).encode())
    elif isinstance(value, float):
        sizes.append(value)
    elif isinstance(value, Mapping):
        for key in value:
            exact.append(str(key).encode())
            _collect(value[key], exact, sizes)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            _collect(inner, exact, sizes)
    else:
        exact += _bytes(value)


def _differing(before: Sequence[Any], now: Sequence[Any]) -> list[int]:
    return [
        number
        for number, ((exact, size), (other_exact, other_size)) in enumerate(zip(before, now, strict=True))
        if exact != other_exact or abs(size - other_size) > _TOLERANCE * (abs(size) + 1e-3)
    ]
