"""A training loop that can be interrupted after any step and resumed on another instance."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

from torch.utils.data import DataLoader

from spot_training import rehearsal
from spot_training.errors import AuditError, SpotTrainingError, print_errors_in_one_line, say
from spot_training.identity import TrainingRun
from spot_training.interval import Interval
from spot_training.spot import Spot
from spot_training.storage.retention import Keep
from spot_training.torch import state
from spot_training.torch.audit.audit import Audit
from spot_training.torch.data import EpochBatches, parts_of, position_of_all
from spot_training.torch.epoch import BatchSource, EpochSteps
from spot_training.torch.loaders.consumers import Batches
from spot_training.torch.loaders.samples import digest
from spot_training.torch.loop_state import LoopState
from spot_training.torch.nodes import ALONE, World
from spot_training.torch.optimization import SCALE_RULES, scale_learning_rates
from spot_training.torch.ranks import TorchRanks
from spot_training.torch.saves import LoopPosition, StateCopy, StepSaves

AUDITS: Final = ("stop", "warn", "off")


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
    saves ``state``, ``mean``, random numbers and the loader's position. It saves between two steps, when the
    next batch is requested; after a notice it then raises ``SystemExit(0)``. During a step longer than
    ``LONG_STEP_SECONDS`` or an evaluation after the batches it saves the state after the last step.

    An epoch that was interrupted after its last ``accumulate`` batches is entered again with those alone: the
    code after them may need values of one. ``repeating`` is then true, optimizers and schedulers take no
    steps, and the state after the epoch's batches is restored before that code runs.

    Each rank creates it, after DDP has wrapped the model or ``fully_shard`` and ``parallelize_module`` have
    divided it. Of a divided state each rank saves its part; any number of ranks restores it.
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
        local: str | os.PathLike[str] | None = None,
        data_mesh: Any = None,
        scale_lr: str | None = None,
        audit: str = "stop",
        **parts: state.Stateful,
    ) -> None:
        """``folder``: ``location`` of ``Checkpointer``; ``name``, ``keep``, ``keep_every``: see there.

        ``asynchronous``: training continues while a copy is written. ``ranks``: default: the processes of
        ``torch.distributed``. ``settings``: what makes this run another one than the last (JSON); default:
        the command's arguments and the values set in optimizers and schedulers. ``local``: of ``Spot``.
        ``data_mesh``: the ``DeviceMesh`` of the ranks that take different batches; default: of
        ``fully_shard``. ``scale_lr``: ``linear`` or ``sqrt``: how learning rates follow the global batch of
        another number of ranks; default: not at all. ``audit``: ``stop``: what a restart would not resume
        ends the training, before its first step or at a save; ``warn`` only says it, ``off`` does not look.
        """
        print_errors_in_one_line()
        if not parts:
            raise SpotTrainingError("Loop() has nothing to save; pass model=..., optimizer=...")
        if scale_lr not in (None, *SCALE_RULES):
            raise SpotTrainingError(f"scale_lr must be {' or '.join(SCALE_RULES)}, not {scale_lr!r}")
        if audit not in AUDITS:
            raise SpotTrainingError(f"audit must be {' or '.join(AUDITS)}, not {audit!r}")
        self._audit, self._is_ending, self._epochs = audit, False, 0
        self._ranks: TorchRanks = ranks or TorchRanks(goes_on=True)
        self._world: World = getattr(self._ranks, "world", ALONE)
        if self._world.has_nodes:
            local = ""  # a lost machine's disk is lost, and its copy is no other node's
            interval = (interval or Interval()).for_nodes(len(self._world.nodes))
        self._state = LoopState(parts, self._ranks, data_mesh)
        self._rehearsal = rehearsal.current()
        self._spot = Spot(
            folder,
            name=name,
            keep=keep,
            keep_every=keep_every,
            local=local,
            interval=interval,
            run=TrainingRun.of_process(settings, self._state.values),
            ranks=self._ranks,
            fingerprint=self._state.fingerprint,
            reshard=True,
            has_randomness=False,  # its own, per rank and position
        )
        self._spot.notice.defers = True
        self._saves = StepSaves(self._spot, self._ranks, asynchronous=asynchronous, replaces=True)
        self._checks = None if audit == "off" else Audit(self._state.parts, self._report)
        self._steps = EpochSteps(self._state, self._saves, self._copy, self._checks)
        saved = self._spot.restore()
        self._ranks_before: int | None = None
        if self._world.has_nodes:
            self._world.has_notice = lambda: self._spot.notice.received
        if saved is not None:
            with self._reported():
                self._state.restore(saved, self._spot.checkpointer.location)
            if saved.world_size != self._ranks.size:
                self._ranks_before = saved.world_size
                if scale_lr is not None:
                    ratio = self._ranks.size / saved.world_size
                    self._state.rate_factor = ratio ** SCALE_RULES[scale_lr]
                    scale_learning_rates(self._state.parts, self._state.rate_factor)
        self._ranks.level(self._state.parts)
        self._state.note_versions()

    @property
    def step(self) -> int:
        """Total batches of the training, including earlier processes."""
        return self._state.position.step

    @property
    def batch(self) -> int:
        """The batches of this epoch that are done, also by earlier processes: 0 in its first step."""
        return self._state.position.batch

    @property
    def state(self) -> dict[str, Any]:
        """Values of the script that each checkpoint includes: counters, a best metric, a curve.

        Tensors and plain values, of this rank; a rank more than before gets those of rank 0.
        """
        return self._state.script

    @property
    def repeating(self) -> bool:
        """Whether the effect of this batch will be undone: it was trained on before the interruption."""
        return self._state.is_repeating

    def mean(self, name: str, value: Any = None, count: int = 1) -> float:
        """Add a value (of ``count`` samples) to this epoch's mean, if given; return the mean so far."""
        return self._state.mean(name, value, count)

    def keep(self, *, metric: Any = None, mode: str = "min", pin: str | None = None) -> bool:
        """Let the state after this step, or after this epoch, stay beside the newest checkpoints.

        It is saved at once if its metric is the best so far (returned), or under a name; see ``Spot.keep``.
        Call it after an optimizer step or after an epoch's batches. Does nothing while ``repeating``.
        """
        return not self.repeating and self._spot.keep(metric=metric, mode=mode, pin=pin)

    def stop(self) -> None:
        """End the training after this epoch (early stopping); a restart does not continue it."""
        self._is_ending = True

    def close(self) -> None:
        """Release the directory before the end: another ``Loop`` of this process may continue from it."""
        self._saves.saver.wait()
        self._saves.drop()
        self._spot.close()

    def epochs(self, count: int) -> Iterator[int]:
        """Yield the remaining epochs, counted from 0, starting with the interrupted one."""
        self._epochs, now = count, self._state
        is_over = now.has_stopped or now.position.epoch >= count
        if is_over:
            now.load_end()
            if self._ranks.rank == 0:
                location = self._spot.checkpointer.location
                say(f"{location}: nothing to train, this run ended at step {self.step}")
        else:
            self._world.start()
            now.undo_changes()
        while now.position.epoch < count and not now.has_stopped:
            yield now.position.epoch
            self._after_epoch()
        if not is_over:
            with self._spot.ending():
                self._saves.save_last(self._copy)
        self._ranks.any(False)  # all have saved: none takes another's end for a loss
        self._world.finish()
        self._spot.finish(self.step)

    def batches(
        self,
        loader: DataLoader[Any],
        *more: DataLoader[Any],
        accumulate: int = 1,
        through: Callable[[Iterator[Any]], Iterable[Any]] = iter,
    ) -> Iterator[Any]:
        """Yield the remaining batches of this epoch.

        ``loader`` has ``EpochBatches`` as its ``batch_sampler``, is a ``StatefulDataLoader`` of torchdata, or
        reads an ``IterableDataset``. With ``more`` a step has a tuple of batches, one of each loader; all
        have ``EpochBatches``, and the shortest ends the epoch. Gradients are not saved: with ``accumulate``
        batches per optimizer step it stops only after complete ones. ``through``: makes of the loader's
        batches those that are yielded, such as ``through=Prefetcher``; what it has read ahead is read again.
        Once an epoch's batches are done, another loader is read as it is, without a position.
        """
        batches = self._batches((loader, *more), accumulate, through)
        if self._rehearsal is not None:
            batches = self._noted(batches, self._rehearsal)
        return Batches(batches, accumulate, None if self._steps.is_done else self._checks)

    def enumerate(self, loader: DataLoader[Any], **options: Any) -> Iterator[tuple[int, Any]]:
        """Yield the remaining batches of this epoch, each with its number; ``options``: of ``batches``."""
        for batch in self.batches(loader, **options):
            yield self.batch, batch

    def _batches(
        self,
        loaders: Sequence[DataLoader[Any]],
        accumulate: int,
        through: Callable[[Iterator[Any]], Iterable[Any]],
    ) -> Iterator[Any]:
        now = self._state
        with self._reported():
            if not self._epochs:
                raise SpotTrainingError(
                    "loop.batches() is outside of an epoch; use it once in for epoch in loop.epochs(n)"
                )
            position = position_of_all(loaders, now.data_rank, now.data_ranks, self._ranks.size)
            self._check_size(loaders[0])
            if self._epochs and not now.position.batch and (steps := position.steps) is not None:
                self._spot.steps = self._epochs * steps
            yield from self._steps.batches(BatchSource(position, accumulate, through))

    def _noted(self, batches: Iterator[Any], rehearsed: rehearsal.Rehearsal) -> Iterator[Any]:
        for batch in batches:
            rehearsed.note(self.step + 1, self._state.position.epoch, digest(batch))
            yield batch

    @contextmanager
    def _reported(self) -> Iterator[None]:
        """Report an error of this package at the script's end, also if the script catches it."""
        try:
            yield
        except SpotTrainingError as error:
            self._spot.progress.failed(error)
            raise

    def _report(self, line: str) -> None:
        """End the training, or say it, by ``audit``."""
        if self.repeating:  # optimizers take no steps
            return
        if self._audit == "stop":
            error = AuditError(f"{line}. Nothing is lost; Loop(audit='warn') goes on")
            self._spot.progress.failed(error)
            raise error
        if self._ranks.rank == 0:
            say(f"a restart would differ: {line}")

    def parts(self, batch: Any, size: int | None = None, model: Any = None) -> Iterator[tuple[Any, float]]:
        """Yield a batch in parts of at most ``size`` samples, each with the weight of its mean loss.

        For ``EpochBatches``: the gradients of the weighted losses, which DDP averages, are those of the mean
        over the step's samples, at any number of ranks. ``model``: of DDP; it exchanges gradients in the last
        part only. Each part needs its ``backward()``, and after all one optimizer step follows.
        """
        loader, now = self._state.loader, self._state.position
        batches = getattr(loader, "batches", None)
        if not isinstance(batches, EpochBatches):
            raise SpotTrainingError("parts() needs a loader with batch_sampler=EpochBatches(...)")
        samples, mine = batches.part_of(now.samples)
        return parts_of(batch, size, model, samples=samples, mine=mine, ranks=self._ranks.size)

    def _check_size(self, loader: DataLoader[Any]) -> None:
        """Reject a loader that another number of ranks cannot use; print a new global batch."""
        batches, before = loader.batch_sampler, self._ranks_before
        if not isinstance(batches, EpochBatches):
            if self._world.may_change:
                raise SpotTrainingError(
                    "the number of nodes may change, and this loader's position holds for one number of "
                    "ranks; use EpochBatches, or set a fixed number of nodes"
                )
        elif before is not None and batches.per_rank and self._ranks.rank == 0:
            size, now = batches.batch_size * before, batches.batch_size * self._ranks.size
            say(f"a step has {now} samples, and had {size}; use per_rank=False, or the same number")
        self._ranks_before = None

    def _after_epoch(self) -> None:
        """Go to the next epoch; exit after a notice."""
        now = self._state
        keeps = self._ranks.rank == 0 and self._spot.keeps
        stopping, keeps = self._ranks.any(self._spot.should_stop(), keeps)
        starts_epochs = now.starts_epochs
        is_end = self._is_ending or now.position.epoch + 1 == self._epochs
        self._saves.settle(self.step, is_stopping=stopping and not is_end and not starts_epochs)
        now.position = LoopPosition(step=self.step, epoch=now.position.epoch + 1)
        now.means, now.repeat, now.has_stopped = {}, None, self._is_ending
        if stopping and not is_end and starts_epochs:
            self._saves.save_last(self._copy, stops_at=self.step)
        if keeps and not is_end:
            self._save_epoch_end(now.epoch_end)
        now.epoch_end = None
        if self._saves.is_slow and self._saves.holds_copies and not is_end and starts_epochs:
            self._saves.hold(self._copy())

    def _save_epoch_end(self, copied: StateCopy | None) -> None:
        """Save the state after an epoch because of ``keep``.

        A loader with its own state cannot start the next epoch in another process: then the state after the
        epoch's last batch is saved, and the code after the batches runs again.
        """
        self._saves.saver.wait()
        if self._state.starts_epochs:
            self._saves.start(self._copy)
        elif copied is not None:
            keep = self._spot.take_keep() or Keep()
            self._saves.start(lambda: replace(copied, keep=keep))
        elif self._spot.last_step == self.step:  # as after a restore
            self._saves.keep_committed(self.step)
        else:
            raise SpotTrainingError(
                "keep() after an epoch needs a loader with a length; use one, or EpochBatches"
            )

    def _copy(self, repeat: tuple[dict[str, int], Any] | None = None) -> StateCopy:
        position = self._state.position
        is_training = position.epoch < self._epochs and not self._state.has_stopped
        if self._checks is not None and is_training:
            self._checks.at_save([position.step, position.batch, position.epoch, *self.state.values()])
        return self._state.copy(repeat, self._spot.take_keep(), has_buffers=not self._saves.saver.busy)
