"""The state of a ``Loop``: its parts, its position, and what each rank has of its own."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, fields
from typing import Any, Final

import torch

from spot_training.errors import SpotTrainingError, log, say
from spot_training.identity import compare
from spot_training.storage.manifest import Checkpoint
from spot_training.storage.retention import Keep
from spot_training.torch import growth, state
from spot_training.torch.audit.gradients import versions_of
from spot_training.torch.loaders import generators
from spot_training.torch.loaders.positions import LoaderPosition
from spot_training.torch.loaders.samples import digest
from spot_training.torch.optimization import hyperparameters, scale_learning_rates, without_steps
from spot_training.torch.saves import PARTS_FILE, LoopPosition, StateCopy, copy_state
from spot_training.torch.shards.loading import has_shards, load_shards
from spot_training.torch.shards.saving import SHARD_FILE, DividedState
from spot_training.torch.shards.support import ZeroState, data_ranks, is_divided, is_zero, refuse_unsupported

_PER_RANK_FILE: Final = "own.pt"
"""The state of each rank: random numbers, ``Loop.state``, a stateful loader. The name is a stored format."""


class LoopState:
    """What a ``Loop`` saves and restores."""

    def __init__(self, parts: Mapping[str, state.Stateful], ranks: Any, data_mesh: Any = None) -> None:
        """``parts``, ``data_mesh``: see ``Loop``; raises ``SpotTrainingError`` for what cannot be saved."""
        refuse_unsupported(parts)
        self.parts = {
            name: generators.GeneratorPart(part) if generators.is_generator(part) else state.unwrap(part)
            for name, part in parts.items()
        }
        self._forms = {name: growth.form(part) for name, part in self.parts.items()}
        self._attributes = growth.module_attributes(self.parts)
        named = self.parts.items()
        self._adapted = {name: ZeroState(part) if is_zero(part) else part for name, part in named}
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
        self.dataset: Any = None
        """The loader's dataset, if this process reads it: without workers."""
        self.script: dict[str, Any] = {}
        """``Loop.state``; the script may hold it."""
        self.means: dict[str, list[float]] = {}
        self.rate_factor = 1.0
        """Of restored learning rates, for another number of ranks."""
        self.has_stopped = self.is_repeating = False
        self.repeat: dict[str, int] | None = None
        """The position before the epoch's last batches, if it was interrupted after them."""
        self.module_digests: dict[str, str] = {}
        """Digests of modules of the script that are not parts, on rank 0; see ``Audit.begin``."""
        self.epoch_end: StateCopy | None = None
        """After the epoch's batches, if the loader cannot start an epoch in another process."""
        self._rank: int = ranks.rank
        self._buffers = state.HostBuffers()
        self._saved: Checkpoint | None = None
        self._versions: Any = None
        self._later: dict[str, Any] = {}
        """Parts that are not restored before the script has begun its epoch: they differ from their state."""
        self._has_warned = False
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
            raise SpotTrainingError(f"mean({name!r}) has no value in this epoch; call it after one was added")
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
        loop_meta: dict[str, Any] = {"module_digests": self.module_digests}
        if self.has_stopped:
            loop_meta["stopped"] = True
        if grown := self._grown():
            loop_meta["grown"] = grown
        if repeat is not None:
            loop_meta["repeat"], per_rank["repeated loader"] = repeat

        def copy_files() -> dict[str, Any]:
            files, buffers = {}, self._buffers if has_buffers else None
            if self._divided is not None:
                files[SHARD_FILE] = state.copy_to_cpu(self._divided.content(), buffers)
            elif self._rank == 0:
                parts = {name: _state_dict(part) for name, part in self.parts.items()}
                files[PARTS_FILE] = state.copy_to_cpu(parts, buffers)
            return {**files, _PER_RANK_FILE: state.copy_to_cpu(per_rank)}

        meta = {"place": asdict(self.position), "loop": loop_meta}
        if self.loader is not None:
            identity = self.loader.identity()
            if not self.position.batch:
                identity.pop("data")  # another epoch may have other data
            meta |= identity
        copied = copy_state(self.position.step, meta, copy_files, keep)
        if repeat is not None and not self.starts_epochs:
            self.epoch_end = copied
        return copied

    def restore(self, saved: Checkpoint, location: str) -> None:
        """Restore a checkpoint; print which of the script's values it replaces."""
        self._load(saved, has_started=False)
        self._report_values(saved, location)
        is_new = self._rank >= saved.world_size
        per_rank = state.read(saved.part(0 if is_new else self._rank) / _PER_RANK_FILE)
        if is_new:
            log.warning("rank %d is new: its random number state is that of the script", self._rank)
            per_rank = {"state": per_rank.get("state", {})}
        self._load_script_state(per_rank)
        stored = saved.meta["place"]
        self.position = LoopPosition(**{field.name: stored[field.name] for field in fields(LoopPosition)})
        loop_meta = saved.meta.get("loop", {})
        self.repeat, self.has_stopped = loop_meta.get("repeat"), loop_meta.get("stopped", False)
        self.module_digests = loop_meta.get("module_digests", {}) if self._rank == 0 else {}
        self._saved, self._per_rank = saved, per_rank

    def enter(
        self, position: LoaderPosition, *, is_repeated: bool
    ) -> tuple[Checkpoint | None, Mapping[str, Any]]:
        """Begin to use a loader; return, once, what was restored: its checkpoint and this rank's state.

        What the script has done at the beginning of an interrupted epoch is undone: it was done before.
        ``is_repeated``: begin before the epoch's last batches.
        """
        self.loader = position
        if self._saved is not None and (self.position.batch or self._later):
            self.load_again()
        position.identity()  # which may draw samples
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
            self.is_repeating, self.position = False, end
            self._load(saved)
            self._load_script_state(per_rank)
            for part in self.parts.values():
                if isinstance(part, torch.nn.Module):
                    part.zero_grad(set_to_none=True)

    def note_versions(self) -> None:
        """Record the parts as they are restored, for ``undo_changes``."""
        self._versions = [versions_of(self.parts), hyperparameters(self.parts)]

    def undo_changes(self) -> None:
        """Load the restored checkpoint again if the script has changed parts since ``Loop(...)``; say it."""
        if self._saved is None or self._versions == [versions_of(self.parts), hyperparameters(self.parts)]:
            return
        self.load_again(has_started=False)
        if self._rank == 0:
            say("what the script has loaded or set in its parts since Loop(...) is undone: they are restored")

    def load_again(self, *, has_started: bool = True) -> None:
        """Load the restored checkpoint again; ``has_started``: with parts that differ from their state."""
        if self._saved is not None:
            self._load(self._saved, has_started=has_started)
            self._load_script_state(self._per_rank)

    def load_end(self) -> None:
        """Load the restored end of a training, with its random numbers: the script may train on after it."""
        self.load_again()
        self.set_randomness(self._per_rank)

    def _grown(self) -> dict[str, Any]:
        """Return the parts whose form is no longer that of the script's start, with the names of groups."""
        changed = [name for name, part in self.parts.items() if growth.form(part) != self._forms[name]]
        result = {name: growth.group_names(self.parts[name], self.parts) for name in changed}
        if result and not self._has_warned and self._rank == 0:
            self._has_warned = True
            say(
                f"{', '.join(result)} changed since Loop(...): a restart has to change it again in the same"
                " epoch, before loop.batches(), unless groups were added or weights pruned"
            )
        return result

    def _load(self, saved: Checkpoint, *, has_started: bool = True) -> None:
        if self._divided is None and not has_shards(saved.path):
            grown = saved.meta.get("loop", {}).get("grown", {})
            self._later = growth.load_parts(
                self.parts, saved.part(0) / PARTS_FILE, grown, has_started=has_started
            )
        else:
            load_shards(self._adapted, saved, PARTS_FILE, is_divided=self._divided is not None)
        if self.rate_factor != 1.0:
            scale_learning_rates(self.parts, self.rate_factor)

    def _per_rank_state(self) -> dict[str, Any]:
        script_state = {"state": self.script, "means": self.means}
        if self.loader is None:  # resumed and already at the end
            return {**self._per_rank, **script_state}
        per_process = {"generators": generators.states(self.dataset)} if self.dataset is not None else {}
        per_process |= {"flags": growth.flags(self.parts, self._attributes), "loader": self.loader.state()}
        return {"randomness": state.randomness(), **per_process, **script_state}

    def set_randomness(self, per_rank: Mapping[str, Any]) -> None:
        """Set random numbers as restored, and those that the dataset draws by itself in this process."""
        if "randomness" in per_rank:
            state.set_randomness(per_rank["randomness"])
        if self.dataset is not None:
            generators.set_states(self.dataset, per_rank.get("generators", {}))

    def _load_script_state(self, per_rank: Mapping[str, Any]) -> None:
        script = state.copy_to_cpu(per_rank.get("state", {}))
        if digest(script) != digest(self.script):  # else the script may have values of it
            self.script.clear()
            self.script.update(script)
        growth.set_flags(self.parts, per_rank.get("flags", {}))
        self.means = state.copy_to_cpu(per_rank.get("means", {}))

    def _report_values(self, saved: Checkpoint, location: str) -> None:
        before = json.loads(json.dumps(self.values))
        if self._rank != 0 or saved.run.get("values") == before:
            return
        if changes := compare(hyperparameters(self.parts), self.values):
            say(f"{location}: restored over the script's values: {'; '.join(changes)}")


def _state_dict(part: Any) -> Any:
    """Return a part's state; a module's keys are without wrappers, which another machine may not need."""
    stored = part.state_dict()
    if not isinstance(part, torch.nn.Module):
        return stored
    names = state.clean_names(part)
    is_clean = all(key == name for key, name in names.items())
    return stored if is_clean else {names[key]: stored[key] for key in stored}
