"""Optimizers and schedulers: what a script has set in them, and batches without their steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import torch
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

_RATES: Final = ("lr", "initial_lr", "max_lr", "min_lr")
"""Learning rates in an optimizer's group: its own, and those that schedulers put there."""
SCALE_RULES: Final = {"linear": 1.0, "sqrt": 0.5}
"""Exponents of the ratio of global batch sizes."""
_COUNTERS: Final = frozenset({"last_epoch", "best", "num_bad_epochs", "cooldown_counter", "verbose"})


def hyperparameters(parts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the plain values of the optimizers' groups and the schedulers, by part; no counters."""
    result: dict[str, Any] = {}
    for name, part in parts.items():
        if isinstance(part, Optimizer):
            result[name] = [plain_values(group) for group in part.param_groups]
        elif isinstance(part, LRScheduler):
            result[name] = plain_values(part.state_dict())
    return result


def plain_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that are numbers, texts or short lists of them; no counters."""
    result = {}
    for key, value in values.items():
        if isinstance(value, torch.Tensor) and value.numel() == 1:
            value = value.item()
        if not key.startswith("_") and key not in _COUNTERS and _is_plain(value):
            result[key] = value
    return result


def _is_plain(value: Any) -> bool:
    items = value if isinstance(value, (list, tuple)) else [value] if value is not None else []
    return all(isinstance(item, (bool, int, float, str)) for item in items) and len(items) <= 16


@contextmanager
def without_steps(parts: Mapping[str, Any]) -> Iterator[None]:
    """Let ``step`` of optimizers and schedulers do nothing inside; a closure is still called."""
    changed = [part for part in parts.values() if isinstance(part, (Optimizer, LRScheduler))]
    before = [vars(part).get("step") for part in changed]
    for part in changed:
        vars(part)["step"] = _no_step
    try:
        yield
    finally:
        for part, step in zip(changed, before, strict=True):
            del vars(part)["step"]
            if step is not None:
                vars(part)["step"] = step


def _no_step(closure: Any = None, *arguments: Any, **options: Any) -> Any:
    """Return the closure's loss, as an optimizer's step does."""
    return closure() if callable(closure) else None


def scale_learning_rates(parts: Mapping[str, Any], factor: float) -> None:
    """Multiply the learning rates of optimizers and schedulers."""
    for part in parts.values():
        if isinstance(part, Optimizer):
            for group in part.param_groups:
                group.update({name: group[name] * factor for name in _RATES if name in group})
        elif isinstance(part, LRScheduler) and hasattr(part, "base_lrs"):
            part.base_lrs = [rate * factor for rate in part.base_lrs]
