"""The audit: what a restart would not resume, looked for before the first step and at each save."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import torch
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import DataLoader

from spot_training import attributes
from spot_training.errors import one_line, say
from spot_training.torch import state
from spot_training.torch.audit.gradients import PendingGradients
from spot_training.torch.audit.objects import ScriptObjects, problems_of_parts, truncated_logs
from spot_training.torch.growth import form
from spot_training.torch.loaders import generators
from spot_training.torch.loaders.samples import digest, draw
from spot_training.torch.state import mapped, tensors_of

_MAX_NAMED: Final = 8


class Audit:
    """``report`` gets a line for each problem; what is only said loses variables or rows of a log."""

    def __init__(self, parts: Mapping[str, Any], report: Callable[[str], None]) -> None:
        """Created where the ``Loop`` is; ``report`` may raise an error."""
        self.report, self._parts, self._is_done = report, parts, False
        self.gradients = PendingGradients(parts)
        self._at_loop = ScriptObjects(parts)
        self._first: ScriptObjects | None = None
        self._loader: Any = None
        self._datasets: list[dict[str, Any]] = []
        self._attributes: dict[str, dict[str, str]] = {}
        self._expected = ""
        """A digest of the batch that a restart draws next; empty: not known."""
        self._named: set[str] = set()

    def begin(self, loader: DataLoader[Any], before: Mapping[str, str]) -> dict[str, str]:
        """Look, once, at what the script has before its first step; return digests of its other modules.

        ``before``: what this returned in the process that a restart follows; empty without one.
        """
        self._loader = loader
        if self._first is not None:
            self._inspect(self._first)
        if not self._is_done and not loader.num_workers:
            self._datasets = [copy.deepcopy(_values(dataset)) for dataset in _datasets(loader)]
        if self._first is not None:
            return {}
        now = self._first = ScriptObjects(self._parts, [loader])
        self._attributes = {name: _digests(part) for name, part in self._parts.items()}
        digests = now.digests()
        for line in (
            *problems_of_parts(self._parts),
            *now.problems(now),
            *now.hidden(self._parts),
            *(now.copies(self._at_loop, self._parts) if not before else ()),
            *now.differing(before),
        ):
            self.report(line)
        return digests

    def at_save(self, resumed: list[Any]) -> None:
        """Look again, when a state is copied. ``resumed``: what the script may have of the ``Loop``."""
        if self._first is None:
            return
        changed = self._inspect(self._first).changed_values(self._first, resumed)
        if self.gradients.steps and self.gradients.are_pending():
            self.report(
                "gradients were computed since the last optimizer step: they are not saved; use"
                " loop.batches(loader, accumulate=n) with n batches in each, and step at an epoch's end"
            )
        new = {name for name in changed if not self._named & {name, *_owners(name)}}
        if names := [name for name in changed if name in new and not new & _owners(name) - {name}]:
            self._named |= set(names)
            more = ", …" if len(names) > _MAX_NAMED else ""
            say(
                f"not resumed, if the training needs them: {', '.join(names[:_MAX_NAMED])}{more}; use"
                " loop.state, loop.step or loop.mean"
            )

    def _inspect(self, first: ScriptObjects) -> ScriptObjects:
        """Report what is not a part and has changed or has come since ``first``; return what there is."""
        now = ScriptObjects(self._parts, [self._loader])
        for line in now.problems(first):
            self.report(line)
        return now

    def after_save(
        self, stored: Mapping[str, Any], loader: DataLoader[Any], indices: list[int] | None
    ) -> None:
        """Compare ``stored``, the parts of the first save. ``indices``: of the next batch, if known."""
        if self._is_done or self._first is None:
            return
        self._is_done = True
        for line in compare_parts(self._parts, stored, self._attributes):
            self.report(line)
        for path in truncated_logs():
            say(f"{path} is open with mode 'w': a restart empties it; use 'a'")
        if indices is not None:
            self._expected = next_batch(loader, indices, self._datasets)

    def check(self, batch: Any) -> None:
        """Compare the batch that follows with the one that a restart draws."""
        expected, self._expected = self._expected, ""
        if expected and digest(batch) != expected:
            self.report(
                "the next batch differs in a new process: the dataset has a state of its own, such "
                "as a counter, a cache or random numbers from the time; make each sample follow from "
                "its index and the random number generators"
            )


def _owners(path: str) -> set[str]:
    """Return the paths of the objects that hold the one at a path, and its name alone."""
    names = path.split(".")
    return {names[-1], *(".".join(names[:count]) for count in range(1, len(names)))}


def compare_parts(
    parts: Mapping[str, Any], stored: Mapping[str, Any], first: Mapping[str, Mapping[str, str]]
) -> list[str]:
    """Return which parts cannot be loaded from their state, or differ then; ``first``: their ``_digests``."""
    result = []
    for name in (name for name in parts if name in stored):
        try:
            problem = _compare(name, parts[name], stored[name], first.get(name, {}))
        except Exception as error:
            problem = f"cannot be loaded: {one_line(error)}"
        if problem:
            kind = type(parts[name]).__name__
            result.append(f"{name}, a {kind}, {problem}; make load_state_dict(state_dict()) restore it")
    return result


def next_batch(loader: DataLoader[Any], indices: list[int], before: list[dict[str, Any]]) -> str:
    """Return a digest of the batch as a new worker draws it; empty if it cannot.

    ``before``: attributes that the loader's datasets have in a new process, if this one reads them.
    """
    collate: Any = loader.collate_fn
    now = state.randomness()

    def prepare(worker: int) -> None:
        state.set_randomness(now)
        for dataset, first in zip(_datasets(loader), before, strict=False):
            for name in _values(dataset):
                delattr(dataset, name)
            vars(dataset).update(first)

    start = None if loader.num_workers else prepare
    drawn = draw(loader, [indices], lambda samples: digest(collate(samples)), 0, start)
    return drawn[0] if drawn else ""


def _datasets(loader: DataLoader[Any]) -> Iterator[Any]:
    """Yield a loader's dataset and those inside of it, as of ``Subset``."""
    dataset: Any = loader.dataset
    while hasattr(dataset, "__dict__"):
        yield dataset
        dataset = vars(dataset).get("dataset")


def _values(dataset: Any) -> dict[str, Any]:
    """Return the plain attributes; a longer list is one of samples."""
    limit, lists = generators.MAX_ITEMS, (list, tuple, dict)
    values = attributes.plain(dataset).items()
    return {name: value for name, value in values if not isinstance(value, lists) or len(value) <= limit}


def _digests(part: Any) -> dict[str, str]:
    """Return digests of what a part has beside a state dict; none of modules and optimizers."""
    if isinstance(part, (torch.nn.Module, Optimizer)):
        return {}
    return {key: digest(value) for key, value in attributes.plain(part, torch.Tensor).items()}


def _compare(name: str, part: Any, stored: Any, first: Mapping[str, str]) -> str:
    if isinstance(part, (torch.nn.Module, Optimizer)):
        inner = {
            k: v for k, v in vars(part).items() if isinstance(part, Optimizer) and isinstance(v, Optimizer)
        }
        saved = {id(tensor) for _, tensor in tensors_of(part.state_dict())} if inner else set()
        for key, optimizer in inner.items():
            if any(id(tensor) not in saved for _, tensor in tensors_of(dict(optimizer.state))):
                return f"leaves out the state of its {key}"
        return "" if form(part) == form(part, stored) else "has another form than its state"
    optimizer = getattr(part, "optimizer", None)  # which a scheduler's state does not change
    try:
        twin = copy.deepcopy(part, {id(optimizer): optimizer} if isinstance(part, LRScheduler) else {})
    except Exception:
        return ""  # it cannot be copied
    now = _digests(part)
    changed = [key for key in now if first.get(key, now[key]) != now[key]]
    for key in changed:  # to another value, which loading has to undo
        value = vars(twin)[key]
        has_tensors = next(tensors_of(value), None) is not None
        vars(twin)[key] = mapped(value, lambda part: part.detach().zero_()) if has_tensors else type(value)()
    before = _digests(twin)
    twin.load_state_dict(state.copy_to_cpu(stored))
    after = _digests(twin)
    if lost := [f"{name}.{key}" for key in changed if after.get(key) == before[key] != now[key]]:
        say(f"not resumed, if the training needs them: {', '.join(lost)}; use {name}.state_dict()")
    return "" if digest(twin.state_dict()) == digest(stored) else "is another one after its state is loaded"
