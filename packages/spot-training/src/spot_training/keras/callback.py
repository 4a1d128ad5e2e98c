"""Keras callbacks that save, stop and log between two batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import keras

from spot_training import randomness
from spot_training.errors import SpotTrainingError
from spot_training.keras import state
from spot_training.keras.batches import Batches
from spot_training.log import TrainingLog
from spot_training.spot import Spot
from spot_training.storage.manifest import Checkpoint


class StopTrainingError(Exception):
    """Leaves ``fit`` after a notice, once the checkpoint is saved."""


class CheckpointCallback(keras.callbacks.Callback):
    """Saves, stops and logs; the last callback, so that the checkpoint includes the others' state."""

    def __init__(
        self,
        spot: Spot,
        batches: Batches,
        log: TrainingLog,
        log_every: int,
        callbacks: Sequence[Any],
        options: Mapping[str, Any],
        best: tuple[str | None, str],
        saved: Checkpoint | None,
        at: state.BatchPosition,
    ) -> None:
        """``options``: those of ``fit``, to repeat a validation; ``best``: ``keep_best`` and its mode."""
        super().__init__()
        self._spot, self._batches, self._log, self._every = spot, batches, log, log_every
        self._callbacks, self._options, self._best = callbacks, options, best
        self._saved, self._at = saved, replace(at, data=batches.identity)
        self._averaged: list[Any] | None = None
        self._generators: list[Any] = []
        self._numbers: str | None = None
        """Random number state after an epoch's batches, before its validation."""
        self.ended_early = False

    @property
    def _step(self) -> int:
        return self._at.epoch * self._batches.whole + self._at.batch

    def on_train_begin(self, logs: Any = None) -> None:
        """Restore; finish an epoch whose batches are done but whose validation is not."""
        self._seed = state.global_seed()  # here: a save writes in a thread of its own
        if not self.model.optimizer.built:
            self.model.optimizer.build(self.model.trainable_variables)
        if new := [name for name, optimizer in state.optimizers(self.model) if not optimizer.built]:
            raise SpotTrainingError(f"the model's {new[0]} is not built; call build(variables) before fit")
        if self._saved is None:
            return
        folder = self._saved.part()
        if len(state.stored(folder)["variables"]) > len(state.variables(self.model)):
            self._build_metrics()
        state.read(folder, self.model, self._callbacks)
        self._generators = state.torch_generators()
        if self._at.batch >= self._batches.whole and not self._at.stopped:
            logs = {**self._at.logs, **self._validate()}
            for callback in (*self._callbacks, self):
                callback.on_epoch_end(self._at.epoch, dict(logs))

    def _build_metrics(self) -> None:
        """Create the variables of losses and metrics from a batch; their values are then restored.

        On JAX ``fit`` has created them; on TensorFlow and PyTorch the first batch would.
        """
        x, y, weight = keras.utils.unpack_x_y_sample_weight(self._batches[0])
        predicted = self.model(x, training=False)
        self.model.compute_loss(x, y, predicted, weight)
        self.model.compute_metrics(x, y, predicted, weight)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Set the epoch's order; in a resumed epoch undo what the others do at its beginning again."""
        self._batches.epoch = epoch
        self._at = replace(self._at, epoch=epoch, batch=self._batches.skip, logs={})
        if self._batches.skip and self._saved is not None:
            state.read(self._saved.part(), self.model, self._callbacks)
        self._saved = None

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Restore PyTorch's generators: loaders draw from them at the start and end of each iteration."""
        state.set_torch_generators(self._generators)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Log; save if due; stop after a notice."""
        self._generators = state.torch_generators()
        done = min(self._batches.skip + batch + 1, self._batches.whole)
        before, self._at = self._at.batch, replace(self._at, batch=done, logs=_numbers(logs))
        self._numbers = randomness.state() if done == self._batches.whole else None
        if self._every and done // self._every > before // self._every:
            names = self._at.logs if "validation_data" in self._options else ()
            row = {"epoch": self._at.epoch, "step": self._step, **self._at.logs}
            self._log.write(row, optional=[f"val_{name}" for name in names])
        self._spot.after(self._step, self._write)
        self._stop_after_notice()

    def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
        """Stop a validation after a notice: the epoch's batches are saved, and the validation restarts."""
        if self._at.batch >= self._batches.whole:
            self._stop_after_notice()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Log the epoch; save it if its metric is the best so far."""
        self._log.write({"epoch": epoch, "step": (epoch + 1) * self._batches.whole, **_numbers(logs)})
        self._at = replace(self._at, epoch=epoch + 1, batch=0, logs={})
        self._numbers = None
        if getattr(self.model.optimizer, "use_ema", False):
            self._averaged = [state.array_of(variable) for variable in self.model.trainable_variables]
        (name, mode), numbers = self._best, _numbers(logs)
        if name and name not in numbers and not name.startswith("val_"):  # not all epochs have a validation
            raise SpotTrainingError(f"keep_best must be {' or '.join(sorted(numbers))}, not {name!r}")
        if name in numbers and self._spot.keep(metric=numbers[name], mode=mode):
            at, self._at = self._at, replace(self._at, stopped=bool(self.model.stop_training))
            self._spot.save(self._step, self._write)
            self._at = at

    def on_train_end(self, logs: Any = None) -> None:
        """Save the last checkpoint."""
        self.ended_early = self._step < (self._spot.steps or 0)
        self._at = replace(self._at, stopped=self.ended_early)
        with self._spot.ending():
            self._spot.save(self._step, self._write, last=True)

    def undo_averages(self) -> None:
        """Restore the weights that an optimizer with moving averages replaced at the end of ``fit``."""
        if self._averaged is not None:
            for variable, value in zip(self.model.trainable_variables, self._averaged, strict=True):
                variable.assign(value)

    def _stop_after_notice(self) -> None:
        if self._spot.should_stop():
            self._spot.save(self._step, self._write)
            raise StopTrainingError

    def _write(self, folder: Path) -> None:
        at = replace(self._at, log=self._log.position())
        state.write(folder, self.model, at, self._callbacks, self._generators, self._numbers, self._seed)

    def _validate(self) -> dict[str, float]:
        data = self._options.get("validation_data")
        every = self._options.get("validation_freq", 1)
        if not isinstance(every, int):
            raise SpotTrainingError(f"validation_freq must be a number of epochs, not {every!r}")
        if data is None or (self._at.epoch + 1) % every:
            return {}
        x, y, weight = keras.utils.unpack_x_y_sample_weight(data)
        options = {"batch_size": self._options.get("validation_batch_size"), "sample_weight": weight}
        steps = self._options.get("validation_steps")
        metrics = self.model.evaluate(x, y, steps=steps, verbose=0, return_dict=True, **options)
        return {f"val_{name}": float(value) for name, value in metrics.items()}


def _numbers(logs: Any) -> dict[str, float]:
    return {name: float(value) for name, value in (logs or {}).items()}
