"""What happens between two batches: save, stop, log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import keras
import numpy as np

from spot_training.checkpointer import Saved
from spot_training.errors import SpotTrainingError
from spot_training.keras import state
from spot_training.keras.batches import Batches
from spot_training.log import TrainingLog
from spot_training.spot import Spot


class ToldError(Exception):
    """The machine goes; all is saved. It leads out of ``fit`` before validation begins."""


class CallbackChain(keras.callbacks.CallbackList):
    """Callbacks whose training begins and ends once, though ``fit`` may be called twice."""

    begun = False
    goes_on = False
    """This call of ``fit`` is followed by another."""

    def on_train_begin(self, logs: Any = None) -> None:
        """See ``CallbackList``."""
        if not self.begun:
            self.begun = True
            super().on_train_begin(logs)

    def on_train_end(self, logs: Any = None) -> None:
        """See ``CallbackList``."""
        if not self.goes_on or self.model.stop_training:
            self.goes_on = False
            super().on_train_end(logs)


def chained(callbacks: Sequence[Any], model: Any, epochs: int, steps: int, verbose: Any) -> CallbackChain:
    """Return them as ``fit`` itself would."""
    return CallbackChain(
        list(callbacks),
        add_history=True,
        add_progbar=verbose != 0,
        model=model,
        verbose=1 if verbose == "auto" else verbose,
        epochs=epochs,
        steps=steps,
    )


class Survive(keras.callbacks.Callback):
    """The last of the callbacks: what the others did at a batch is in the checkpoint."""

    def __init__(
        self,
        spot: Spot,
        batches: Batches,
        log: TrainingLog,
        log_every: int,
        others: Sequence[Any],
        options: Mapping[str, Any],
    ) -> None:
        """``options``: those of ``fit``, for a validation that was interrupted."""
        super().__init__()
        self._spot = spot
        self._batches = batches
        self._log = log
        self._every = log_every
        self._others = others
        self._options = options
        self._saved: Saved | None = None
        self._at = state.BatchPosition(data=batches.identity)
        self._metrics: list[Any] | None = None
        self._averaged: list[Any] | None = None
        self.ended_early = False

    def resume(self, saved: Saved | None, at: state.BatchPosition) -> None:
        """Go on at a checkpoint when training begins."""
        self._saved = saved
        self._at = replace(at, data=self._batches.identity)

    @property
    def _step(self) -> int:
        return self._at.epoch * self._batches.whole + self._at.batch

    def on_train_begin(self, logs: Any = None) -> None:
        """Restore; then the end of an epoch that had all its batches but not its validation."""
        if not self.model.optimizer.built:
            self.model.optimizer.build(self.model.trainable_variables)
        if self._saved is None:
            return
        state.read(self._saved.part(), self.model, self._others)
        self._metrics = state.metrics(self.model)
        if self._at.batch >= self._batches.whole and not self._at.stopped:
            logs = {**self._at.logs, **self._validated()}
            for one in (*self._others, self):
                one.on_epoch_end(self._at.epoch, dict(logs))

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Choose the epoch's order; in the middle of one the metrics go on."""
        self._batches.epoch = epoch
        self._at = replace(self._at, epoch=epoch, batch=self._batches.skip, logs={})
        if self._batches.skip and self._metrics is not None:
            for one, value in zip(self.model.metrics_variables, self._metrics, strict=True):
                one.assign(value)
        self._metrics = None

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Log; save if it is time; stop if told."""
        done = min(self._batches.skip + batch + 1, self._batches.whole)
        before, self._at = self._at.batch, replace(self._at, batch=done, logs=_numbers(logs))
        if self._every and done // self._every > before // self._every:
            self._log.write({"epoch": self._at.epoch, "step": self._step, **self._at.logs})
        self._spot.after(self._step, self._write)
        self._stop_if_told()

    def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
        """Stop a validation, too: all batches of its epoch are saved, and it begins anew elsewhere."""
        if self._at.batch >= self._batches.whole and self._spot.should_stop():
            self._spot.save(self._step, self._write)
            raise ToldError

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Log."""
        self._log.write({"epoch": epoch, "step": (epoch + 1) * self._batches.whole, **_numbers(logs)})
        self._at = replace(self._at, epoch=epoch + 1, batch=0, logs={})
        if getattr(self.model.optimizer, "use_ema", False):
            self._averaged = [np.asarray(one.value) for one in self.model.trainable_variables]

    def on_train_end(self, logs: Any = None) -> None:
        """Save the end."""
        self.ended_early = self._step < (self._spot.steps or 0)
        self._at = replace(self._at, stopped=self.ended_early)
        self._spot.save(self._step, self._write, last=True)

    def undo_averages(self) -> None:
        """Put back the weights that an optimizer with moving averages replaced when ``fit`` ended."""
        if self._averaged is not None:
            for one, value in zip(self.model.trainable_variables, self._averaged, strict=True):
                one.assign(value)

    def _stop_if_told(self) -> None:
        if self._spot.should_stop():
            self._spot.save(self._step, self._write)
            raise ToldError

    def _write(self, folder: Path) -> None:
        at = replace(self._at, log=self._log.position())
        state.write(folder, self.model, at, self._others)

    def _validated(self) -> dict[str, float]:
        data = self._options.get("validation_data")
        every = self._options.get("validation_freq", 1)
        if not isinstance(every, int):
            raise SpotTrainingError(f"validation_freq is {every!r}, allowed: a number of epochs")
        if data is None or (self._at.epoch + 1) % every:
            return {}
        x, y, weight = keras.utils.unpack_x_y_sample_weight(data)
        told = self.model.evaluate(
            x,
            y,
            sample_weight=weight,
            batch_size=self._options.get("validation_batch_size"),
            steps=self._options.get("validation_steps"),
            verbose=0,
            return_dict=True,
        )
        return {f"val_{name}": float(value) for name, value in told.items()}


def _numbers(logs: Any) -> dict[str, float]:
    return {name: float(value) for name, value in (logs or {}).items()}
