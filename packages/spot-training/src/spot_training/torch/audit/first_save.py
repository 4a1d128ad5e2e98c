"""What was just saved, loaded into copies of the parts; and the next batch, as a restart would draw it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any, Final

import torch
from torch.optim import Optimizer
from torch.utils.data import DataLoader

from spot_training.errors import one_line
from spot_training.torch import state
from spot_training.torch.audit.objects import ScriptObjects, problems_of_parts
from spot_training.torch.growth import form
from spot_training.torch.loaders.samples import digest, draw

_UNKNOWN: Final = ""


class Audit:
    """Looks once, at the first batch and at the first save; ``report`` gets a line for each problem."""

    def __init__(self, parts: Mapping[str, Any], report: Callable[[str], None] | None) -> None:
        """``report``: None: nothing is looked at."""
        self._parts, self._report = parts, report
        self._objects: ScriptObjects | None = None
        self._is_done = report is None
        self._expected = _UNKNOWN

    def begin(self, loaders: Any) -> None:
        """Look at what the script has, before its first step."""
        if self._report is None or self._objects is not None:
            return
        self._objects = ScriptObjects(self._parts, loaders)
        for line in (*problems_of_parts(self._parts), *self._objects.problems()):
            self._report(line)

    def after_save(
        self, stored: Mapping[str, Any], loader: DataLoader[Any], indices: list[int] | None
    ) -> None:
        """Compare ``stored``, the saved parts. ``indices``: of the next batch, if they are known."""
        if self._is_done or self._report is None or self._objects is None:
            return
        self._is_done = True
        for line in (*self._objects.changes(), *compare_parts(self._parts, stored)):
            self._report(line)
        if indices is not None:
            self._expected = next_batch(loader, indices)

    def check(self, batch: Any) -> None:
        """Compare the batch that follows with the one that a restart draws."""
        expected, self._expected = self._expected, _UNKNOWN
        if expected and self._report is not None and digest(batch) != expected:
            self._report(
                "the next batch differs in a new process: the dataset has a state of its own, such "
                "as a counter, a cache or random numbers from the time; make each sample follow from "
                "its index and the random number generators"
            )


def compare_parts(parts: Mapping[str, Any], stored: Mapping[str, Any]) -> list[str]:
    """Return which parts cannot be loaded from their state, or are others then."""
    result = []
    for name, part in parts.items():
        if name not in stored:
            continue
        try:
            problem = _compare(part, stored[name])
        except Exception as error:
            problem = f"cannot be loaded: {one_line(error)}"
        if problem:
            result.append(
                f"{name}, a {type(part).__name__}, {problem}; make load_state_dict(state_dict()) restore it"
            )
    return result


def next_batch(loader: DataLoader[Any], indices: list[int]) -> str:
    """Return a digest of the batch as a new worker draws it; empty if it cannot."""
    collate: Any = loader.collate_fn
    now = state.randomness()

    def reduce(samples: list[Any]) -> str:
        return digest(collate(samples))

    prepare = None if loader.num_workers else lambda worker: state.set_randomness(now)
    drawn = draw(loader, [indices], reduce, 0, prepare)
    return drawn[0] if drawn else _UNKNOWN


def _compare(part: Any, stored: Any) -> str:
    if isinstance(part, (torch.nn.Module, Optimizer)):
        return "has another form than its state" if form(part) != form(part, stored) else ""
    shared = {
        id(value): value for value in vars(part).values() if isinstance(value, (torch.nn.Module, Optimizer))
    }
    try:
        twin = copy.deepcopy(part, {id(value): value for value in shared})
    except Exception:
        return ""  # it cannot be copied
    twin.load_state_dict(state.copy_to_cpu(stored))
    return "is another one after its state is loaded" if digest(twin.state_dict()) != digest(stored) else ""
