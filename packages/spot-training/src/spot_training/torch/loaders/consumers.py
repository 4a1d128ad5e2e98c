"""What stands between ``Loop.batches`` and the script: counters, prefetchers, other threads."""

from __future__ import annotations

import gc
import inspect
import itertools
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from types import GeneratorType
from typing import Any, Final

from spot_training.errors import SpotTrainingError
from spot_training.torch.audit.audit import Audit

_MAX_DEPTH: Final = 5
_REFUSED: Final[Mapping[type, str]] = {
    enumerate: "enumerate() counts from 0 in a resumed epoch; use loop.enumerate(loader)",
    zip: "zip() begins the others again in a resumed epoch; use loop.batches(a, b) or loop.enumerate",
    itertools.islice: "islice() counts from 0 in a resumed epoch; use `if loop.batch == n: break`",
    itertools.cycle: "cycle() repeats what this process has seen; use loop.epochs with loop.batches",
}


class Batches:
    """The batches of an epoch, as the script iterates over them; what a restart would lose is reported."""

    def __init__(self, batches: Iterator[Any], accumulate: int, audit: Audit | None) -> None:
        """``audit``: None if nothing is to be checked."""
        self._batches, self._accumulate, self._audit = batches, accumulate, audit
        self._thread, self._requests = threading.get_ident(), 0
        self._before: list[Any] = []
        self._request_line: Any = None
        self._is_skipped = False
        """The loop that requests them has gone on to the second without a step."""

    def __iter__(self) -> Batches:
        return self

    def __next__(self) -> Any:
        if threading.get_ident() != self._thread:
            raise SpotTrainingError(
                "loop.batches() is read in another thread, ahead of the steps, so a restart would "
                "skip batches; use loop.batches(loader, through=Prefetcher)"
            )
        self._requests += 1
        if self._audit is None or (self._requests > 2 and not self._is_skipped):
            return next(self._batches)
        if self._requests > 2:
            return self._after_skip(self._audit)
        before, self._request_line = self._request_line, _request_line()
        if self._requests == 2:
            self._is_skipped = before == self._request_line
            self._request_line = None
            self._check_step(self._audit)
        batch = next(self._batches)
        for kind in consumers_of(self) if self._requests == 1 else ():
            self._audit.report(_REFUSED[kind])
        self._before = self._audit.gradients.marks()
        return batch

    def _after_skip(self, audit: Audit) -> Any:
        """Return the next batch; report a pass that ends without any step."""
        try:
            return next(self._batches)
        except StopIteration:
            if audit.gradients.marks()[:2] == self._before[:2]:
                self._is_skipped = False
                self._check_step(audit)
            raise

    def _check_step(self, audit: Audit) -> None:
        """Report a second request before the first batch was used, or after gradients without a step."""
        gradients, report = audit.gradients, audit.report
        now = gradients.marks()
        if not gradients.is_known or now[:2] != self._before[:2]:
            return
        if gradients.are_pending() and self._accumulate == 1:
            report(
                "the first batch has left gradients and no optimizer step, and gradients are not "
                "saved; use loop.batches(loader, accumulate=n) with n batches in each step"
            )
        elif now == self._before and not self._is_skipped:
            report(
                "the second batch is requested before the first one is used, either by a prefetcher, "
                "with which a restart would skip a batch, or without training; use "
                "loop.batches(loader, through=Prefetcher), or to evaluate: for batch in loader"
            )


def _request_line() -> Any:
    """Return where the script requests a batch; something of its own in a generator, which may read ahead."""
    frame: Any = sys._getframe(2)
    while str(frame.f_globals.get("__name__")).startswith("spot_training."):
        frame = frame.f_back
    return object() if frame.f_code.co_flags & inspect.CO_GENERATOR else (frame, frame.f_lasti)


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
    running = (item for item in gc.get_objects() if type(item) is GeneratorType) if frames else ()
    return [item for item in running if item.gi_frame in frames]
