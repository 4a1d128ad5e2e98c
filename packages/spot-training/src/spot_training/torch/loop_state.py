"""The state of a ``Loop``: its parts, its position, and what each rank has of its own."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, fields
from typing import Any, Final

import torch

from spot_training.errors import SpotTrainingError, say
from spot_training.identity import compare
from spot_training.retention.rules import Keep
from spot_training.storage.manifest import Checkpoint
from spot_training.torch import state
from spot_training.torch.loaders.positions import LoaderPosition
from spot_training.torch.loading import load_parts
from spot_training.torch.optimization import hyperparameters, without_steps
from spot_training.torch.shards.batches import data_ranks
from spot_training.torch.shards.loading import has_shards, load_shards
from spot_training.torch.shards.saving import SHARD_FILE, DividedState
from spot_training.torch.shards.support import is_divided, refuse_unsupported
from spot_training.torch.shards.zero import adapted
from spot_training.torch.snapshot import LoopPosition, StateCopy, copy_state

_PARTS_FILE: Final = "parts.pt"
"""The state of the parts if it is the same at every rank, written by rank 0; else each has ``SHARD_FILE``."""
_PER_RANK_FILE: Final = "own.pt"
"""The state of each rank: random numbers, ``Loop.state``, a stateful loader. The name is a stored format."""
_log = logging.getLogger("spot_training")


class LoopState:
    """What a ``Loop`` saves and restores."""

    def __init__(self, parts: Mapping[str, state.Stateful], ranks: Any, data_mesh: Any = None) -> None:
        """``parts``, ``data_mesh``: see ``Loop``; raises ``SpotTrainingError`` for what cannot be saved."""
        refuse_unsupported(parts)
        self.parts = {name: state.unwrap(part) for name, part in parts.items()}
        self._adapted = adapted(self.parts)
        state.check_types(self._adapted)
        self.values = hyperparameters(self.parts)
        """Set by the script in optimizers and schedulers."""
        self.fingerprint = state.fingerprint(self.parts)
        self._divided = (
            DividedState(self._adapted, ranks, self.fingerprint) if is_divided(self.parts) else None
        )
        self.data_rank, self.data_ranks = data_ranks(self.parts, ranks, data_mesh)
        """This rank's number among those that take different batches, and their number."""
        self.position = LoopPosition()
        self.loader: LoaderPosition | None = None
        self.script: dict[str, Any] = {}
        """``Loop.state``; the script may hold it."""
        self.means: dict[str, list[float]] = {}
        self.has_stopped = False
        self.is_repeating = False
        self.repeat: dict[str, int] | None = None
        """The position before the epoch's last batches, if it was interrupted after them."""
        self.epoch_end: StateCopy | None = None
        """After the epoch's batches, if the loader cannot start an epoch in another process."""
        self._rank: int = ranks.rank
        self._buffers = state.HostBuffers()
        self._saved: Checkpoint | None = None
        self._per_rank: dict[str, Any] = {}

    @property
    def starts_epochs(self) -> bool:
        """Whether an epoch can start in another process."""
        return self.loader is None or self.loader.starts_epochs

    def mean(self, name: str, value: Any, count: int) -> float:
        """See ``Loop.mean``."""
        total, number = self.means.get(name, (0.0, 0))
        if value is not None:
            value = value.detach() if isinstance(value, torch.Tensor) else value
            total, number = total + float(value) * count, number + count
            self.means[name] = [total, number]
        if not number:
            raise SpotTrainingError(f"mean({name!r}) has no value in this epoch; allowed: after a value")
        return total / number

    def copy(
        self, repeat: tuple[dict[str, int], Any] | None, keep: Keep | None, *, has_buffers: bool
    ) -> StateCopy:
        """Return a copy of the state.

        ``repeat``: at the end of an epoch's batches, the position and loader state before the last ones.
        ``has_buffers``: whether the memory of the last copy is free.
        """
        self._buffers.begin()
        per_rank = self._per_rank_state()
        loop_meta: dict[str, Any] = {"stopped": True} if self.has_stopped else {}
        if repeat is not None:
            loop_meta["repeat"], per_rank["repeated loader"] = repeat

        def copy_files() -> dict[str, Any]:
            files, buffers = {}, self._buffers if has_buffers else None
            if self._divided is not None:
                files[SHARD_FILE] = state.copy_to_cpu(self._divided.content(), buffers)
            elif self._rank == 0:
                parts = {name: part.state_dict() for name, part in self.parts.items()}
                files[_PARTS_FILE] = state.copy_to_cpu(parts, buffers)
            return {**files, _PER_RANK_FILE: state.copy_to_cpu(per_rank)}

        meta = {"place": asdict(self.position), "loop": loop_meta}
        if self.loader is not None and self.position.batch:  # another epoch may have other data
            meta |= self.loader.identity()
        copied = copy_state(self.position.step, meta, copy_files, keep)
        if repeat is not None and not self.starts_epochs:
            self.epoch_end = copied
        return copied

    def restore(self, saved: Checkpoint, location: str) -> None:
        """Restore a checkpoint; print which of the script's values it replaces."""
        self._load(saved)
        self._report_values(saved, location)
        is_new = self._rank >= saved.world_size
        per_rank = state.read(saved.part(0 if is_new else self._rank) / _PER_RANK_FILE)
        if is_new:
            _log.warning("rank %d is new: its random number state is that of the script", self._rank)
            per_rank = {"state": per_rank.get("state", {})}
        self._load_script_state(per_rank)
        stored = saved.meta["place"]
        self.position = LoopPosition(**{field.name: stored[field.name] for field in fields(LoopPosition)})
        loop_meta = saved.meta.get("loop", {})
        self.repeat, self.has_stopped = loop_meta.get("repeat"), loop_meta.get("stopped", False)
        self._saved, self._per_rank = saved, per_rank

    def enter(
        self, position: LoaderPosition, *, is_repeated: bool
    ) -> tuple[Checkpoint | None, Mapping[str, Any]]:
        """Begin to use a loader; return, once, what was restored: its checkpoint and this rank's state.

        ``is_repeated``: begin before the epoch's last batches.
        """
        self.loader = position
        saved, per_rank = self._saved, self._per_rank
        self._saved, self._per_rank = None, {}
        if saved is not None:
            position.restore(saved, per_rank.get("repeated loader" if is_repeated else "loader"))
        return saved, per_rank

    @contextmanager
    def repeating(
        self, saved: Checkpoint, per_rank: Mapping[str, Any], repeat: Mapping[str, int]
    ) -> Iterator[None]:
        """Take the epoch's last batches again inside, without effect: then restore the state after them."""
        end, done = self.position, self.position.batch - repeat["batch"]
        self.position = LoopPosition(end.step - done, end.epoch, repeat["batch"], repeat["samples"])
        self.is_repeating = True
        if self.loader is not None:
            self.loader.begin(end.epoch, repeat["samples"])
        try:
            with without_steps(self.parts):
                yield
        finally:  # also if the script leaves the loop
            self.is_repeating = False
            self.position = end
            self._load(saved)
            self._load_script_state(per_rank)
            for part in self.parts.values():
                if isinstance(part, torch.nn.Module):
                    part.zero_grad(set_to_none=True)

    def _load(self, saved: Checkpoint) -> None:
        if self._divided is None and not has_shards(saved.path):
            load_parts(self.parts, saved.part(0) / _PARTS_FILE)
        else:
            is_divided_here = self._divided is not None
            load_shards(self._adapted, saved, _PARTS_FILE, is_divided=is_divided_here)

    def _per_rank_state(self) -> dict[str, Any]:
        script_state = {"state": self.script, "means": self.means}
        if self.loader is None:  # resumed and already at the end
            return {**self._per_rank, **script_state}
        return {"randomness": state.randomness(), "loader": self.loader.state(), **script_state}

    def _load_script_state(self, per_rank: Mapping[str, Any]) -> None:
        self.script.clear()
        self.script.update(state.copy_to_cpu(per_rank.get("state", {})))
        self.means = state.copy_to_cpu(per_rank.get("means", {}))

    def _report_values(self, saved: Checkpoint, location: str) -> None:
        before = json.loads(json.dumps(self.values))
        if self._rank != 0 or saved.run.get("values") == before:
            return
        if changes := compare(hyperparameters(self.parts), self.values):
            say(f"{location}: restored over the script's values: {'; '.join(changes)}")
