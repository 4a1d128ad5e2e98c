"""A training loop that can be interrupted after any step and resumed on another instance."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import torch
from torch.utils.data import DataLoader

from spot_training.checkpointer import Checkpoint
from spot_training.errors import (
    SaveError,
    SpotTrainingError,
    one_line,
    print_errors_in_one_line,
)
from spot_training.identity import TrainingRun, compare
from spot_training.interval import Interval
from spot_training.report import say
from spot_training.retention.rules import Keep
from spot_training.spot import Spot
from spot_training.torch import state
from spot_training.torch.data import LoaderPosition, position_of, sigterm_blocked
from spot_training.torch.loading import load_parts
from spot_training.torch.optimization import hyperparameters, without_steps
from spot_training.torch.ranks import TorchRanks
from spot_training.torch.saver import BackgroundSaver
from spot_training.torch.sharding import refuse_sharded
from spot_training.torch.snapshot import LoopPosition, StateCopy
from spot_training.torch.standby import Standby

_PARTS_FILE: Final = "parts.pt"
"""The state of the parts: the same at every rank, written by rank 0."""
_PER_RANK_FILE: Final = "own.pt"
"""The state of each rank: random numbers, ``Loop.state``, a stateful loader. The name is a stored format."""
LONG_STEP_SECONDS: Final = 10.0
"""After a step this long a copy of the state is held in case a notice comes during the next one."""
_log = logging.getLogger("spot_training")


class Loop:
    """Makes a training loop fault-tolerant: resumes when created, saves when due, exits after a notice.

    Example::

        loop = Loop(model=model, optimizer=optimizer, scheduler=scheduler)
        for epoch in loop.epochs(10):
            for batch in loop.batches(loader):
                ...  # forward, backward, optimizer.step(), scheduler.step()
                loop.mean("loss", loss)
            print(epoch, loop.mean("loss"))

    ``parts`` are all objects with state, by name, each with ``state_dict`` and ``load_state_dict``. It also
    saves ``state`` and ``mean``, the random number state of Python, NumPy, PyTorch and this process's GPU,
    and the loader's position. It saves between two steps, when the loop requests its next batch; after a
    notice it saves and raises ``SystemExit(0)`` there. During an evaluation after an epoch's batches, or a
    step that takes longer than ``LONG_STEP_SECONDS``, it saves the state after the last step and raises it
    wherever the script is.

    An epoch that was interrupted after its last batch is entered again with that batch alone (with the last
    ``accumulate`` batches), because the code after the batches may need values of one. ``repeating`` is then
    true, optimizers and schedulers take no steps, and the state after the epoch's batches is restored before
    that code runs.

    With several ranks each of them creates it, after DDP has wrapped the model.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str] | None = None,
        *,
        name: str | None = None,
        keep: int = 3,
        keep_every: int | None = None,
        asynchronous: bool = True,
        interval: Interval | None = None,
        ranks: Any = None,
        settings: Mapping[str, Any] | None = None,
        **parts: state.Stateful,
    ) -> None:
        """``folder``: ``location`` of ``Checkpointer``; ``name``, ``keep``, ``keep_every``: see there.

        ``asynchronous``: training continues while a copy of the state is written.
        ``ranks``: default: the processes of ``torch.distributed``.
        ``settings``: what makes this run another one than the last (JSON); default: the command's arguments
        and the values that the script has set in its optimizers and schedulers.
        """
        print_errors_in_one_line()
        if not parts:
            raise SpotTrainingError("Loop() has nothing to save; pass model=..., optimizer=...")
        refuse_sharded(parts)
        self._parts = {name: state.unwrap(part) for name, part in parts.items()}
        state.check_types(self._parts)
        self._ranks: TorchRanks = ranks or TorchRanks()
        self._asynchronous = asynchronous
        self._saver = BackgroundSaver()
        self._buffers = state.HostBuffers()
        self._position = LoopPosition()
        self._loader_position: LoaderPosition | None = None
        self._epoch_end: StateCopy | None = None
        self._saved: Checkpoint | None = None
        self._per_rank_state: dict[str, Any] = {}
        self._repeat: dict[str, int] | None = None
        self._is_repeating = False
        self._state: dict[str, Any] = {}
        self._means: dict[str, list[float]] = {}
        self._has_stopped = self._is_ending = self._is_slow = False
        self._epochs: int | None = None
        self._step_ended_at = time.monotonic()
        self._values = hyperparameters(self._parts)
        self._spot = Spot(
            folder,
            interval=interval,
            run=TrainingRun.of_process(settings, self._values),
            name=name,
            keep=keep,
            keep_every=keep_every,
            ranks=self._ranks,
            fingerprint=state.fingerprint(self._parts),
            reshard=True,
        )
        self._standby = (
            Standby(self._spot.notice, self._ranks) if hasattr(self._ranks, "request_stop") else None
        )
        self._restore()

    @property
    def step(self) -> int:
        """Total batches of the training, including earlier processes."""
        return self._position.step

    @property
    def state(self) -> dict[str, Any]:
        """Values of the script that each checkpoint includes: counters, a best metric, a curve.

        Tensors and plain values, of this rank; a rank more than before gets those of rank 0.
        """
        return self._state

    @property
    def repeating(self) -> bool:
        """Whether the effect of this batch will be undone: it was trained on before the interruption."""
        return self._is_repeating

    def mean(self, name: str, value: Any = None, count: int = 1) -> float:
        """Add a value (of ``count`` samples) to this epoch's mean, if given; return the mean so far."""
        total, number = self._means.get(name, (0.0, 0))
        if value is not None:
            value = value.detach() if isinstance(value, torch.Tensor) else value
            total, number = total + float(value) * count, number + count
            self._means[name] = [total, number]
        if not number:
            raise SpotTrainingError(f"mean({name!r}) has no value in this epoch; allowed: after a value")
        return total / number

    def keep(self, *, metric: Any = None, mode: str = "min", pin: str | None = None) -> bool:
        """Let the state after this step, or after this epoch, stay beside the newest checkpoints.

        It is saved at once if its metric is the best so far (returned), or under a name; see ``Spot.keep``.
        Call it after an optimizer step or after an epoch's batches. Does nothing while ``repeating``.
        """
        return not self._is_repeating and self._spot.keep(metric=metric, mode=mode, pin=pin)

    def stop(self) -> None:
        """End the training after this epoch (early stopping); a restart does not continue it."""
        self._is_ending = True

    def close(self) -> None:
        """Release the directory before the end: another ``Loop`` of this process may continue from it."""
        self._saver.wait()
        if self._standby is not None:
            self._standby.disarm()
            self._standby.drop()
        self._spot.close()

    def epochs(self, count: int) -> Iterator[int]:
        """Yield the remaining epochs, counted from 0, starting with the interrupted one."""
        self._epochs = count
        is_over = self._has_stopped or self._position.epoch >= count
        if is_over and self._ranks.rank == 0:
            say(f"{self._location}: nothing to train, this run ended at step {self._position.step}")
        while self._position.epoch < count and not self._has_stopped:
            yield self._position.epoch
            self._after_epoch()
        if not is_over:
            with self._spot.ending():
                self._save(last=True)
        self._spot.finish(self._position.step)

    def batches(self, loader: DataLoader[Any], *, accumulate: int = 1) -> Iterator[Any]:
        """Yield the remaining batches of this epoch.

        ``loader`` has ``EpochBatches`` as its ``batch_sampler``, is a ``StatefulDataLoader`` of torchdata, or
        reads an ``IterableDataset``.
        Gradients are not saved: with ``accumulate`` batches per optimizer step it stops only after complete
        optimizer steps.
        """
        position = self._loader_position = position_of(loader, self._ranks.rank, self._ranks.size)
        saved, per_rank, repeat = self._saved, self._per_rank_state, self._repeat
        self._saved, self._per_rank_state, self._repeat = None, {}, None
        if saved is not None:
            position.restore(saved, per_rank.get("repeated loader" if repeat else "loader"))
        if self._epochs is not None and (steps := position.steps) is not None:
            self._spot.steps = self._epochs * steps
        if saved is not None and repeat is not None:
            yield from self._repeat_last(saved, per_rank, repeat, loader)
            return
        position.begin(self._position.epoch, self._position.samples)
        is_at_start = position.starts_epochs and not self._position.batch
        if "randomness" in per_rank and is_at_start:
            state.set_randomness(per_rank["randomness"])  # before iter(), which draws a number for the epoch
        with sigterm_blocked():
            batches = position.iterate(loader, accumulate)
        if "randomness" in per_rank and not is_at_start:
            state.set_randomness(per_rank["randomness"])  # after iter(), which draws a number
        yield from self._train(batches, position, accumulate)

    def _train(self, batches: Iterator[Any], position: LoaderPosition, accumulate: int) -> Iterator[Any]:
        current, before = self._position, None
        self._step_ended_at = time.monotonic()
        while True:
            if (
                not current.batch % accumulate
                and position.remaining(current.batch, current.samples) == accumulate
            ):
                before = {"batch": current.batch, "samples": current.samples}, position.state()
            try:
                batch = next(batches)
            except StopIteration:
                return
            yield batch
            current.step, current.batch = current.step + 1, current.batch + 1
            current.samples = position.after(current.samples)
            if not current.batch % accumulate:
                ends = position.remaining(current.batch, current.samples) == 0
                self._between_steps(before if ends else None)

    def _repeat_last(
        self, saved: Checkpoint, per_rank: dict[str, Any], repeat: Mapping[str, int], loader: DataLoader[Any]
    ) -> Iterator[Any]:
        """Yield the epoch's last batches again; then restore the state after them."""
        end, position = self._position, self._loader_position
        assert position is not None
        done = end.batch - repeat["batch"]
        self._position = LoopPosition(end.step - done, end.epoch, repeat["batch"], repeat["samples"])
        position.begin(end.epoch, repeat["samples"])
        self._is_repeating = True
        try:
            with sigterm_blocked():
                batches = position.iterate(loader, 1)
            with without_steps(self._parts):
                for batch in batches:
                    yield batch
                    self._position.step, self._position.batch = self.step + 1, self._position.batch + 1
        finally:  # also if the script leaves the loop
            self._is_repeating = False
            self._position = end
            load_parts(self._parts, saved.part(0) / _PARTS_FILE)
            self._load_per_rank(per_rank)
            for part in self._parts.values():
                if isinstance(part, torch.nn.Module):
                    part.zero_grad(set_to_none=True)
        if "randomness" in per_rank:
            state.set_randomness(per_rank["randomness"])
        if self._standby is not None:
            self._standby.arm(lambda: None)  # it is saved: at a notice only stop

    def _after_epoch(self) -> None:
        """Go to the next epoch; exit after a notice."""
        stopping, keeps = self._ranks.any(
            self._spot.should_stop(), self._ranks.rank == 0 and self._spot.keeps
        )
        can_start_here = self._starts_epochs
        is_end = self._is_ending or self._position.epoch + 1 == self._epochs
        self._settle_standby(stopping and not is_end and not can_start_here)
        self._position = LoopPosition(step=self._position.step, epoch=self._position.epoch + 1)
        self._means = {}
        self._repeat, self._has_stopped = None, self._is_ending
        if stopping and not is_end and can_start_here:
            self._save(last=True)
            self._exit()
        if keeps and not is_end:
            self._save_epoch_end(can_start_here)
        self._epoch_end = None
        if self._standby is not None and self._is_slow and not is_end and can_start_here:
            self._hold(None)

    def _save_epoch_end(self, can_start_here: bool) -> None:
        """Save the state after an epoch because of ``keep``.

        A loader with its own state cannot start the next epoch in another process: then the state after the
        epoch's last batch is saved, and the code after the batches runs again.
        """
        if can_start_here:
            self._save(last=False)
            return
        self._saver.wait()
        is_committed = self._spot.checkpointer.last_step == self._position.step  # as after a restore
        if self._epoch_end is None and is_committed:
            self._spot.save(self._position.step, lambda folder: None, last=False)
            return
        if self._epoch_end is None:
            raise SpotTrainingError("keep() after an epoch, allowed: a loader with a length, or EpochBatches")
        snapshot = replace(self._epoch_end, keep=self._spot.take_keep() or Keep())
        self._begin_write(snapshot, 0.0)

    def _hold(self, repeat: tuple[dict[str, int], Any] | None) -> None:
        """Hold a copy of the state, for a notice before the next agreement of the ranks."""
        snapshot = self._snapshot(repeat)
        if self._standby is not None:
            self._standby.arm(lambda: self._write(snapshot, last=True))

    def _between_steps(self, repeat: tuple[dict[str, int], Any] | None) -> None:
        """Save if due, exit after a notice; all ranks do the same at the same step.

        ``repeat``: at the end of an epoch's batches, the position and loader state before the last ones.
        """
        self._saver.check()
        self._spot.progress.report(self._position.step, self._spot.steps)
        is_first = self._ranks.rank == 0
        is_save_due = self._spot.keeps or (not self._saver.busy and self._spot.should_save())
        is_save_due = is_first and is_save_due
        is_slow = is_first and time.monotonic() - self._step_ended_at > LONG_STEP_SECONDS
        is_stopping, is_save_due, is_slow = self._ranks.any(self._spot.should_stop(), is_save_due, is_slow)
        self._is_slow = is_slow
        self._settle_standby(False)
        if is_stopping:
            seconds_left = self._spot.notice.seconds_left
            [gives_way] = self._ranks.any(is_first and self._saver.must_give_way(seconds_left))
            if gives_way:
                self._saver.give_way()
            self._save(last=True, repeat=repeat)
            self._exit()
        if is_save_due:
            self._save(last=False, repeat=repeat)
            if self._standby is not None and repeat is not None:
                self._standby.arm(self._saver.wait)
        elif (repeat is not None or is_slow) and (self._standby is not None or not self._starts_epochs):
            self._hold(repeat)
        self._step_ended_at = time.monotonic()

    def _settle_standby(self, complete: bool) -> None:
        """Drop the save for a notice on all ranks, or complete it on all if one has started it, and exit.

        All ranks have come here. ``complete``: start it in any case.
        """
        if self._standby is None or not self._standby.is_armed:
            if complete:
                self._saver.wait()
                self._exit()
            return
        [has_started] = self._ranks.any(self._standby.disarm() or complete)
        if has_started:
            self._standby.complete()
            self._exit()
        self._standby.drop()

    def _exit(self) -> None:
        _log.warning("saved at step %d; stopping for the interruption", self._position.step)
        self._spot.progress.is_interrupted = lambda: True  # of this rank, too, if another had the notice
        raise SystemExit(0)

    def _save(self, *, last: bool, repeat: tuple[dict[str, int], Any] | None = None) -> None:
        started = time.monotonic()
        self._saver.wait()
        snapshot = self._snapshot(repeat)
        if last:
            self._write(snapshot, last=True)
        else:
            self._begin_write(snapshot, time.monotonic() - started)

    def _begin_write(self, snapshot: StateCopy, paused_seconds: float) -> None:
        """Commit a snapshot, in the background unless ``asynchronous`` is false."""
        if not self._asynchronous:
            self._write(snapshot, last=False)
            return
        save = partial(self._write, snapshot, last=False, paused_seconds=paused_seconds)
        self._saver.start(save, gives_way=snapshot.keep == Keep())

    def _snapshot(self, repeat: tuple[dict[str, int], Any] | None) -> StateCopy:
        """Return a copy of the state; a state that cannot be copied fails the save, not the training."""
        started, files, error = time.monotonic(), {}, None
        buffers = None if self._saver.busy else self._buffers  # a save that runs writes from them
        self._buffers.begin()
        per_rank = self._collect_per_rank_state()
        loop_meta: dict[str, Any] = {"stopped": True} if self._has_stopped else {}
        if repeat is not None:
            loop_meta["repeat"], per_rank["repeated loader"] = repeat
        try:
            if self._ranks.rank == 0:
                files[_PARTS_FILE] = state.copy_to_cpu(
                    {name: part.state_dict() for name, part in self._parts.items()}, buffers
                )
            files[_PER_RANK_FILE] = state.copy_to_cpu(per_rank)
        except (TypeError, ValueError, AttributeError) as reason:
            error = state.UnsupportedStateError(f"the state cannot be copied: {one_line(reason)}")
        meta = {
            "place": asdict(self._position),
            "loop": loop_meta,
        }
        if self._loader_position is not None and self._position.batch:  # another epoch may have other data
            meta |= self._loader_position.identity()
        seconds, keep = time.monotonic() - started, self._spot.take_keep() or Keep()
        snapshot = StateCopy(self._position.step, meta, files, error, seconds, keep)
        if repeat is not None and not self._starts_epochs:
            self._epoch_end = snapshot
        return snapshot

    def _write(self, snapshot: StateCopy, *, last: bool, paused_seconds: float | None = None) -> None:
        """Commit a snapshot; ``paused_seconds``: if it is written in the background."""
        started = time.monotonic()
        is_background = paused_seconds is not None
        if not is_background:
            self._saver.wait()

        def check() -> None:
            if is_background and self._saver.gives_way:
                raise SaveError("gave way to the save at the notice")

        def write(folder: Path) -> None:
            if snapshot.error is not None:
                raise snapshot.error
            for name, content in snapshot.files.items():
                state.write(folder / name, content, check)

        self._spot.save(
            snapshot.step,
            write,
            snapshot.meta,
            last=last,
            paused_seconds=lambda: (
                time.monotonic() - started + snapshot.seconds if paused_seconds is None else paused_seconds
            ),
            replace=True,
            keep=snapshot.keep,
        )

    @property
    def _starts_epochs(self) -> bool:
        """Whether an epoch can start in another process."""
        return self._loader_position is None or self._loader_position.starts_epochs

    def _collect_per_rank_state(self) -> dict[str, Any]:
        script_state = {"state": self._state, "means": self._means}
        if self._loader_position is None:  # resumed and already at the end
            return {**self._per_rank_state, **script_state}
        return {"randomness": state.randomness(), "loader": self._loader_position.state(), **script_state}

    @property
    def _location(self) -> str:
        return self._spot.checkpointer.location

    def _restore(self) -> None:
        saved = self._spot.restore()
        if saved is not None:
            load_parts(self._parts, saved.part(0) / _PARTS_FILE)
            self._report_values(saved)
            is_new = self._ranks.rank >= saved.world_size
            per_rank = state.read(saved.part(0 if is_new else self._ranks.rank) / _PER_RANK_FILE)
            if is_new:
                _log.warning(
                    "rank %d is new: its random number state is that of the script", self._ranks.rank
                )
                per_rank = {"state": per_rank.get("state", {})}
            self._load_per_rank(per_rank)
            self._per_rank_state = per_rank
            stored = saved.meta["place"]
            self._position = LoopPosition(
                **{field.name: stored[field.name] for field in fields(LoopPosition)}
            )
            loop_meta = saved.meta.get("loop", {})
            self._repeat, self._has_stopped = loop_meta.get("repeat"), loop_meta.get("stopped", False)
            self._saved = saved
        self._ranks.level(self._parts)

    def _load_per_rank(self, per_rank: Mapping[str, Any]) -> None:
        """Restore the script's values in the dictionary that the script may hold."""
        self._state.clear()
        self._state.update(state.copy_to_cpu(per_rank.get("state", {})))
        self._means = state.copy_to_cpu(per_rank.get("means", {}))

    def _report_values(self, saved: Checkpoint) -> None:
        """Print the values of optimizers and schedulers that were restored over those of the script."""
        before = json.loads(json.dumps(self._values))
        if self._ranks.rank != 0 or saved.run.get("values") == before:
            return
        if changes := compare(hyperparameters(self._parts), self._values):
            say(f"{self._location}: restored over the script's values: {'; '.join(changes)}")
