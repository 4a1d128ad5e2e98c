"""Fault-tolerant ``fit``: training can be interrupted at any batch."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras

from spot_training.errors import MismatchError, SpotTrainingError
from spot_training.keras import state
from spot_training.keras.batches import Batches
from spot_training.keras.callback import CheckpointCallback, StopTrainingError
from spot_training.log import TrainingLog
from spot_training.spot import Spot
from spot_training.storage.retention import Keep


class CallbackChain(keras.callbacks.CallbackList):
    """A callback list that starts and ends training once, although ``fit`` may be called twice."""

    is_started = False
    continues = False
    """This call of ``fit`` is followed by another."""

    def on_train_begin(self, logs: Any = None) -> None:
        """See ``CallbackList``."""
        if not self.is_started:
            self.is_started = True
            super().on_train_begin(logs)

    def on_train_end(self, logs: Any = None) -> None:
        """See ``CallbackList``."""
        if not self.continues or self.model.stop_training:
            self.continues = False
            super().on_train_end(logs)


_UNSUPPORTED = ("initial_epoch", "steps_per_epoch", "validation_split")


class SpotModel:
    """A compiled model whose ``fit`` resumes at the last checkpoint and saves by the interval.

    Within one batch of a notice it saves and exits with code 0; with ``exits=False`` ``fit`` returns, and
    ``stopped`` is true. The log has a row per epoch and per ``log_every`` batches, as JSON lines or CSV by
    the end of its name; default ``training.jsonl`` in the artifacts directory, else the working directory.
    ``keep_best``: a name of the epoch's logs, such as ``val_loss``; the checkpoint of the epoch with the
    lowest value (``mode="max"``: the highest) stays. ``options``: see ``Spot``.
    """

    def __init__(
        self,
        model: Any,
        location: str | os.PathLike[str] | None = None,
        *,
        log: str | os.PathLike[str] | None = None,
        log_every: int = 0,
        exits: bool = True,
        keep_best: str | None = None,
        mode: str = "min",
        spot: Spot | None = None,
        **options: Any,
    ) -> None:
        if not getattr(model, "optimizer", None):
            raise SpotTrainingError("the model is not compiled; compile it with an optimizer")
        self.model, self.stopped = model, False
        self.spot = spot or Spot(location, has_randomness=False, **options)
        self._exits, self._log_every, self._used = exits, log_every, False
        self._best = keep_best, Keep(mode=mode).mode
        path = Path(log or Path(os.environ.get("GPU_SPOT_ARTIFACTS", ".")) / "training.jsonl")
        self._log = TrainingLog(path)

    def fit(
        self,
        x: Any,
        y: Any = None,
        *,
        batch_size: int = 32,
        epochs: int = 1,
        callbacks: Sequence[Any] = (),
        shuffle: bool = True,
        seed: int = 0,
        sample_weight: Any = None,
        verbose: Any = "auto",
        **options: Any,
    ) -> Any:
        """Train to the last epoch; return Keras's history of this process.

        Arguments are those of ``model.fit`` without ``initial_epoch``, ``steps_per_epoch``,
        ``validation_split``. ``x``: arrays or a ``PyDataset``; ``seed``: of the data's order.
        """
        if names := ", ".join(name for name in _UNSUPPORTED if name in options):
            raise SpotTrainingError(f"fit must not get {names}, which follow from the data; leave them out")
        if self._used:
            raise SpotTrainingError("fit was called twice; use a new SpotModel for each fit")
        self._used = True
        batches = Batches(x, y, sample_weight, batch_size=batch_size, shuffle=shuffle, seed=seed)
        saved = self.spot.restore()
        at = state.BatchPosition(**state.stored(saved.part())["position"]) if saved else state.BatchPosition()
        if saved and list(at.data) != batches.identity:  # the position would mean other samples
            raise MismatchError(
                f"{self.spot.checkpointer.location} is of a training on other data: "
                f"samples, batch size, shuffle, seed were {list(at.data)}, now {batches.identity}"
            )
        options.setdefault("validation_batch_size", batch_size)
        self._log.rewind(at.log)
        self.spot.steps = batches.whole * epochs
        checkpoint_callback = CheckpointCallback(
            self.spot, batches, self._log, self._log_every, callbacks, options, self._best, saved, at
        )
        chain = CallbackChain(
            [*callbacks, checkpoint_callback],
            add_history=True,
            add_progbar=verbose != 0,
            model=self.model,
            verbose=1 if verbose == "auto" else verbose,
            epochs=epochs,
            steps=batches.whole,
        )
        begin = {"callbacks": chain, "shuffle": False, "verbose": verbose, **options}
        first = epochs if at.stopped else at.epoch + (at.batch >= batches.whole)
        try:
            if 0 < at.batch < batches.whole and first < epochs:
                batches.skip = at.batch
                chain.continues = first + 1 < epochs
                self.model.fit(batches, initial_epoch=first, epochs=first + 1, **begin)
                batches.skip = 0
                first = first + 1 if not self.model.stop_training else epochs
                if chain.continues:
                    checkpoint_callback.undo_averages()
            if chain.continues or not chain.is_started:
                chain.continues = False
                self.model.fit(batches, initial_epoch=first, epochs=epochs, **begin)
        except StopTrainingError:
            self.stopped = True
            self.spot.finish()
            if self._exits:
                sys.exit(0)
        else:
            self.spot.finish(self.spot.steps if not checkpoint_callback.ended_early else None)
        finally:
            self._log.close()
        return self.model.history
