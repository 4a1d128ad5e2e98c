"""Fault-tolerant ``Trainer.fit`` of Lightning: a callback that saves, stops and resumes between two steps."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any, Final

import torch

from spot_training.errors import MismatchError, SpotTrainingError, print_errors_in_one_line, say
from spot_training.identity import TrainingRun
from spot_training.interval import Interval
from spot_training.lightning import state as extra
from spot_training.lightning import trainer as ask
from spot_training.lightning.loader import ResumableLoader
from spot_training.spot import Spot
from spot_training.torch import callbacks, state
from spot_training.torch.optimization import plain_values
from spot_training.torch.ranks import TorchRanks
from spot_training.torch.saves import StateCopy, StepSaves, copy_state, numbered

STRATEGIES: Final = ("SingleDeviceStrategy", "DDPStrategy")
"""Those that do not divide the state among the ranks."""


class SpotCheckpoint:
    """Makes the Trainer save when due and on a notice; after a notice it ends the process.

    It saves when the Trainer requests a batch: all of the step before is done. At a notice during a
    validation or at an epoch's end it saves the state before the last step, which is then taken again.
    """

    def __new__(cls, *arguments: Any, **options: Any) -> SpotCheckpoint:
        """Return an instance that is also a ``Callback`` of the imported package of Lightning, or of both."""
        return object.__new__(type(cls.__name__, (cls, *ask.callback_classes()), {}))

    def __init__(
        self,
        folder: str | os.PathLike[str] | None = None,
        *,
        name: str | None = None,
        keep: int = 3,
        interval: Interval | None = None,
        settings: Mapping[str, Any] | None = None,
        local: str | os.PathLike[str] | None = None,
    ) -> None:
        """``folder``: ``location`` of ``Checkpointer``; ``name``, ``keep``: its; ``local``: of ``Spot``.

        ``settings``: what makes this run another one than the last (JSON); default: the command's arguments,
        the module's hyperparameters, and the values that it sets in its optimizers and schedulers.
        """
        print_errors_in_one_line()
        self._folder, self._settings, self._is_training = folder, settings, False
        self._options: dict[str, Any] = {"name": name, "keep": keep, "interval": interval, "local": local}
        self._spot: Any = None
        self._saved: Any = None
        self._loader: Any = None
        self._extra: dict[str, Any] | None = None
        self._last: StateCopy | None = None
        self._rows: list[list[dict[str, str]]] = []

    def resume_from(self, model: Any) -> str | None:
        """Return the newest checkpoint for ``fit(ckpt_path=...)``; None: start at step 0.

        Under torchrun call ``torch.distributed.init_process_group`` before.
        """
        self._ranks = TorchRanks()
        self._spot = Spot(
            self._folder,
            run=TrainingRun.of_process(self._settings, plain_values(model.hparams)),
            ranks=self._ranks,
            has_randomness=False,
            fingerprint=state.fingerprint({"model": model}),
            **self._options,
        )
        self._handler = signal.getsignal(signal.SIGTERM)
        self._saves = StepSaves(self._spot, self._ranks)
        self._saved = saved = self._spot.restore()
        if saved is None:
            self._seed = int(self._ranks.gather(str(torch.initial_seed()))[0])
            return None
        self._seed = saved.meta["seed"]
        self._rows = extra.read_logs(saved.meta.get("logs", ())) if self._ranks.rank == 0 else []
        self._extra = state.read(saved.part(self._ranks.rank) / extra.RANK_FILE)
        return str(saved.part(0) / extra.LIGHTNING_FILE)

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Prepare the train loader; reject what cannot be saved."""
        if stage != "fit":
            return
        if self._spot is None:
            raise SpotTrainingError(
                "SpotCheckpoint has no model; pass fit(ckpt_path=spot.resume_from(model))"
            )
        kind = type(trainer.strategy).__name__
        if kind not in STRATEGIES or trainer.world_size != self._ranks.size:
            raise SpotTrainingError(
                f"{kind} with {trainer.world_size} processes is not supported; use one device, or DDP "
                "under torchrun after torch.distributed.init_process_group()"
            )
        self._limits: list[str] = []
        # Their own setup would set it, to a directory of this start's logger.
        if any(getattr(callback, "dirpath", "") is None for callback in trainer.checkpoint_callbacks):
            self._limits = ["the best models of a ModelCheckpoint without dirpath"]
        self._trainer, self._module = trainer, pl_module
        extra.restore_logs(trainer, self._rows)
        process = trainer.strategy.process_dataloader
        trainer.strategy.process_dataloader = lambda loader: self._prepared(process(loader))

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """Compare the script's values with those of the checkpoint's run; keep an early stop."""
        self._values = ask.values(trainer)
        if self._saved is not None:
            if self._settings is None:
                ask.refuse_other_values(self._saved, self._values)
            self._values = self._saved.meta["values"]
            trainer.should_stop = bool(self._saved.meta["stopped"])

    def on_sanity_check_start(self, trainer: Any, pl_module: Any) -> None:
        """Handle SIGTERM in place of Lightning, which would raise an exception after the step."""
        with contextlib.suppress(ValueError):  # not in the main thread
            signal.signal(signal.SIGTERM, self._handler)

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Begin; say in one line what will not be resumed."""
        self.on_sanity_check_start(trainer, pl_module)
        fit = trainer.fit_loop
        if "DataLoaderIter" in type(fit._data_fetcher).__name__:
            raise SpotTrainingError(
                "training_step(dataloader_iter) has no position that can be saved; take batch instead"
            )
        state.check_types({"the Trainer": SimpleNamespace(state_dict=partial(extra.dump, trainer))})
        if (limits := self._limits + ask.not_resumed(trainer)) and self._ranks.rank == 0:
            say(f"not resumed: {'; '.join(limits)}")
        epochs, batches = fit.max_epochs, trainer.num_training_batches
        self._spot.steps = epochs * batches if epochs > 0 and batches != float("inf") else None
        fit.epoch_loop._restarting = False  # the position is restored when the first batch is requested
        self._marks = callbacks.marks(extra.stateless(trainer), pl_module)
        self._is_training = True

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Drop the copy for a notice: the script may handle the exception and go on."""
        if self._spot is not None:
            self._saves.drop()

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Copy the last state; it is saved in ``teardown``, after exports in other hooks."""
        self._is_training = False
        self._last = self._copy_state()

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Save the last state and report the end to the agent."""
        if stage != "fit" or self._spot is None:
            return
        self._saves.settle(self._step)
        del trainer.strategy.process_dataloader
        if self._last is None and not trainer.fit_loop.done:
            return  # a Tuner's fit: the training comes
        if self._last is not None:
            with self._spot.ending():
                self._saves.write(self._last)
        elif self._saved is not None and self._extra is not None:
            location = self._spot.checkpointer.location
            say(f"{location}: nothing to train, this run ended at step {self._saved.step}")
            extra.restore_values(trainer, pl_module, self._extra)
        self._spot.finish(self._step)

    @property
    def _step(self) -> int:
        """Batches of the whole training, including earlier processes."""
        return int(self._trainer.fit_loop.epoch_loop.batch_progress.total.ready)

    def _prepared(self, loader: Any) -> Any:
        """Return a train loader as ``ResumableLoader``, others unchanged."""
        if self._trainer.state.stage != "train":
            return loader
        ways, accumulate = (self._position, self._between_steps), self._trainer.accumulate_grad_batches
        self._loader = ResumableLoader(loader, self._seed, self._ranks, *ways, accumulate=accumulate)
        if self._extra is not None:
            self._loader.load(self._saved, self._extra["loader"])
        return self._loader

    def _position(self) -> tuple[int, int]:
        """Return epoch and batch of the next iteration."""
        saved = self._extra
        done = saved["loops"]["epoch_loop.batch_progress"]["current"]["ready"] if saved else 0
        return self._trainer.current_epoch, done

    def _between_steps(self) -> None:
        """Restore, save if due, exit after a notice."""
        if not self._is_training:
            return
        if self._extra is not None:
            self._restore(self._extra)
        # Gradients are not saved: only between two complete optimizer steps.
        trainer, done = self._trainer, self._trainer.fit_loop.epoch_loop.batch_progress.current.ready
        accumulate = trainer.accumulate_grad_batches
        if done % accumulate == 0:
            remaining = self._loader.remaining(done)
            is_long, numbers = ask.is_validated_next(trainer, remaining), numbered(remaining, accumulate)
            self._saves.between_steps(self._step, self._copy_state, is_long=is_long, remaining=numbers)

    def _restore(self, saved: dict[str, Any]) -> None:
        order, self._extra = self._loader.order, None
        extra.restore(self._trainer, self._module, saved)
        if order is not None and saved["order"] not in (None, order.digest):
            raise MismatchError(
                f"{self._saved.path} was saved with other data or another sampler; use those of that run"
            )
        self._saved = replace(self._saved)  # it is read, and its files may go

    def _copy_state(self) -> StateCopy:
        stopped = not self._is_training and self._trainer.should_stop
        meta: dict[str, Any] = {"seed": self._seed, "stopped": stopped, "values": self._values}
        if self._ranks.rank == 0:
            meta["logs"] = extra.log_positions(self._trainer)
        if self._is_training and self._loader.stream is not None:  # another epoch may have other data
            meta |= self._loader.stream.identity()
        copy_files = partial(
            extra.copy_files, self._trainer, self._module, self._loader, self._ranks.rank, self._marks
        )
        return copy_state(self._step, meta, copy_files)
