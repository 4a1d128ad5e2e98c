"""What stands between ``Loop.batches`` and the script: counters, prefetchers, other threads."""

from __future__ import annotations

import gc
import inspect
import itertools
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import GeneratorType
from typing import Any, Final

import torch
from torch.optim import Optimizer

from spot_training.errors import SpotTrainingError
from spot_training.torch.loaders.generators import GeneratorPart

_MAX_DEPTH: Final = 5
_REFUSED: Final[Mapping[type, str]] = {
    enumerate: "enumerate() counts from 0 in a resumed epoch; use loop.enumerate(loader)",
    zip: ("zip() begins the others again in a resumed epoch; use loop.batches(a, b) or loop.enumerate"),
    itertools.islice: "islice() counts from 0 in a resumed epoch; use `if loop.batch == n: break`",
    itertools.cycle: "cycle() repeats what this process has seen; use loop.epochs with loop.batches",
}


class Batches:
    """The batches of an epoch, as the script iterates over them.

    ``report`` gets, in one line, what a restart would not resume: it may raise an error.
    """

    def __init__(
        self,
        batches: Iterator[Any],
        parts: Mapping[str, Any],
        accumulate: int,
        report: Callable[[str], None] | None,
    ) -> None:
        """``report``: None if nothing is to be checked."""
        self._batches, self._parts = batches, parts
        self._accumulate, self._report = accumulate, report
        self._thread = threading.get_ident()
        self._requests = 0
        self._before: list[Any] = []

    def __iter__(self) -> Batches:
        """Return this."""
        return self

    def __next__(self) -> Any:
        """Return the next batch."""
        if threading.get_ident() != self._thread:
            raise SpotTrainingError(
                "loop.batches() is read in another thread, ahead of the steps, so a restart would "
                "skip batches; use loop.batches(loader, through=Prefetcher)"
            )
        self._requests += 1
        if self._report is not None and self._requests == 2:
            self._check_step(self._report)
        batch = next(self._batches)
        if self._report is not None and self._requests == 1:
            for kind in consumers_of(self):
                self._report(_REFUSED[kind])
            self._before = _evidence(self._parts)
        return batch

    def _check_step(self, report: Callable[[str], None]) -> None:
        """Report a second request before the first batch was used, or after gradients without a step."""
        if not any(isinstance(part, Optimizer) for part in self._parts.values()):
            return
        now, before = _evidence(self._parts), self._before
        if now == before:
            report(
                "the second batch is requested before the first one is used, either by a prefetcher, "
                "with which a restart would skip a batch, or without training; use "
                "loop.batches(loader, through=Prefetcher), or to evaluate: for batch in loader"
            )
        elif now[0] == before[0] and now[2] != before[2] and self._accumulate == 1:
            report(
                "the first batch has left gradients and no optimizer step, and gradients are not "
                "saved; use loop.batches(loader, accumulate=n) with n batches in each step"
            )


def consumers_of(iterator: Any) -> list[type]:
    """Return the types of ``_REFUSED`` between an iterator and its reader.

    A generator that runs shows the collector none of its variables: it is known by its frame, and passes the
    batches on if it has got them as an argument, or by its ``self``.
    """
    result, front, seen_ids = list[type](), [iterator], {id(iterator)}
    for _ in range(_MAX_DEPTH):
        behind = [
            owner
            for owner in (*gc.get_referrers(*front), *_running(front))
            if id(owner) not in seen_ids and (hasattr(type(owner), "__next__") or type(owner) is tuple)
        ]
        seen_ids |= {id(owner) for owner in behind}
        result += [type(owner) for owner in behind if type(owner) in _REFUSED]
        if not (front := behind):
            break
    return result


def _running(front: Sequence[Any]) -> list[Any]:
    """Return the generators on the stack that have got one of ``front``."""
    frames, frame = [], sys._getframe(2)
    while frame is not None:
        code = frame.f_code
        if code.co_flags & inspect.CO_GENERATOR:
            received = [frame.f_locals.get(name) for name in code.co_varnames[: code.co_argcount]]
            received += [inner for item in received for inner in getattr(item, "__dict__", {}).values()]
            if any(item is passed for item in received for passed in front):
                frames.append(frame)
        frame = frame.f_back  # type: ignore[assignment]
    return (
        [item for item in gc.get_objects() if type(item) is GeneratorType and item.gi_frame in frames]
        if frames
        else []
    )


def _evidence(parts: Mapping[str, Any]) -> list[Any]:
    """Return what a step of an optimizer or a scaler changes, tensors, and gradients."""
    optimizers = [part for part in parts.values() if isinstance(part, Optimizer)]
    trained = [value for part in optimizers for group in part.param_groups for value in group["params"]]
    modules = [part for part in parts.values() if isinstance(part, torch.nn.Module)]
    tensors = [_version(value) for part in modules for value in (*part.parameters(), *part.buffers())]
    plain = [
        repr(part.state_dict())
        for part in parts.values()
        if not isinstance(part, (Optimizer, GeneratorPart, torch.nn.Module))
    ]
    gradients = [None if value.grad is None else (id(value.grad), _version(value.grad)) for value in trained]
    states = [state for part in optimizers for state in part.state.values() if isinstance(state, Mapping)]
    counts = [value for state in states for value in state.values() if type(value) is int]  # as of LBFGS
    steps = [*map(_version, trained), len(states), *counts, *plain]
    return [steps, tensors, gradients]


def _version(tensor: torch.Tensor) -> int:
    try:
        return int(tensor._version)
    except RuntimeError:  # made under inference_mode
        return 0
