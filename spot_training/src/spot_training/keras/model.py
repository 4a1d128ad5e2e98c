"""``fit`` for a machine that may go at any batch."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from spot_training.errors import MismatchError, SpotTrainingError
from spot_training.keras import state
from spot_training.keras.batches import Batches
from spot_training.keras.callback import Survive, ToldError, chained
from spot_training.log import TrainingLog
from spot_training.spot import Spot

_REFUSED = ("initial_epoch", "steps_per_epoch", "validation_split")
_log = logging.getLogger("spot_training")


class SpotModel:
    """A compiled model whose ``fit`` goes on where the last checkpoint is, and saves by the interval.

    Within one batch of the notice it saves and ends the process with exit code 0, which tells the agent that
    it goes on elsewhere. With ``exits=False`` ``fit`` returns, and ``stopped`` is true. The log has a row an
    epoch and, with ``log_every``, one every so many batches; it is ``training.jsonl`` among the artifacts,
    else here. ``options``: see ``Spot``.
    """

    def __init__(
        self,
        model: Any,
        place: str | os.PathLike[str] | None = None,
        *,
        log: str | os.PathLike[str] | None = None,
        log_every: int = 0,
        exits: bool = True,
        spot: Spot | None = None,
        **options: Any,
    ) -> None:
        if not getattr(model, "optimizer", None):
            raise SpotTrainingError("the model is not compiled; allowed: one with an optimizer")
        self.model = model
        self.spot = spot or Spot(place, **options)
        self.stopped = False
        self._exits = exits
        self._log_every = log_every
        path = Path(log or Path(os.environ.get("GPU_SPOT_ARTIFACTS", ".")) / "training.jsonl")
        self._log = TrainingLog(path)
        self._used = False

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
        """Train to the last epoch; return Keras's history of what this process did.

        Arguments are those of ``model.fit`` but ``initial_epoch``, ``steps_per_epoch``, ``validation_split``.
        ``x`` is arrays or a ``PyDataset``; ``seed`` orders the data. Numbers and weights that callbacks keep
        (``EarlyStopping``) are saved, too.
        """
        if wrong := [name for name in _REFUSED if name in options]:
            raise SpotTrainingError(f"fit got {', '.join(wrong)}; not allowed: they come from the data")
        if self._used:
            raise SpotTrainingError("fit is called again; a second training needs a SpotModel of its own")
        self._used = True
        batches = (
            x
            if isinstance(x, Batches)
            else Batches(x, y, sample_weight, batch_size=batch_size, shuffle=shuffle, seed=seed)
        )
        saved = self.spot.restore()
        at = state.position(saved.part()) if saved else state.BatchPosition()
        if saved and list(at.data) != batches.identity:  # steps would count something else
            raise MismatchError(
                f"{self.spot.checkpointer.where} is of a training on other data: "
                f"samples, batch size, shuffle, seed were {list(at.data)}, now {batches.identity}"
            )
        options.setdefault("validation_batch_size", batch_size)
        self._log.rewind(at.log)
        self.spot.steps = batches.whole * epochs
        survive = Survive(self.spot, batches, self._log, self._log_every, callbacks, options)
        survive.resume(saved, at)
        chain = chained([*callbacks, survive], self.model, epochs, batches.whole, verbose)
        begin = {"callbacks": chain, "shuffle": False, "verbose": verbose, **options}
        first = epochs if at.stopped else at.epoch + (at.batch >= batches.whole)
        try:
            if 0 < at.batch < batches.whole and first < epochs:
                batches.skip = at.batch
                chain.goes_on = first + 1 < epochs
                self.model.fit(batches, initial_epoch=first, epochs=first + 1, **begin)
                batches.skip = 0
                first = first + 1 if not self.model.stop_training else epochs
                survive.undo_averages()
            if chain.goes_on or not chain.begun:
                chain.goes_on = False
                self.model.fit(batches, initial_epoch=first, epochs=epochs, **begin)
        except ToldError:
            self.stopped = True
            self.spot.finish()
            if self._exits:
                sys.exit(0)
        else:
            self.spot.finish(self.spot.steps if not survive.ended_early else None)
        finally:
            self._log.close()
        return self.model.history
