"""``transformers.Trainer`` that survives: a callback, and where to resume from."""

from __future__ import annotations

import logging
import os
import shutil
from functools import partial
from pathlib import Path
from typing import Any, Final

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from spot_training.errors import SpotTrainingError
from spot_training.spot import Spot
from spot_training.torch.ranks import TorchRanks
from spot_training.torch.state import fingerprint

# The Trainer's own mark of a folder that it is writing (trainer_jit_checkpoint.py), which its resume does not ask for.
INCOMPLETE: Final = "checkpoint-is-incomplete.txt"
_log = logging.getLogger("spot_training")


class SpotCallback(TrainerCallback):
    """Lets the Trainer save when due and when told, and ends the process when told and saved::

        spot = SpotCallback()
        trainer = Trainer(..., callbacks=[spot])
        trainer.train(resume_from_checkpoint=spot.resume_from())

    The Trainer writes ``checkpoint-N`` in its ``output_dir``, file by file. From there it goes into a checkpoint
    that is whole or not there (by links where both are on one disk), and the Trainer's folder away, unless
    ``load_best_model_at_end`` wants it. What the Trainer's own ``save_strategy`` saves goes the same way. With
    several ranks ``output_dir`` must be on a disk that all of them see.
    """

    def __init__(self, folder: str | os.PathLike[str] | None = None, *, keep: int = 3) -> None:
        self._folder, self._keep = folder, keep
        self._spot: Spot | None = None
        self._told = False

    def on_init_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Get to know the model: what is saved of another one is refused."""
        if getattr(args, "enable_jit_checkpoint", False):
            raise SpotTrainingError(
                "enable_jit_checkpoint=True: both would answer SIGTERM; allowed with SpotCallback: False"
            )
        if args.save_only_model:
            raise SpotTrainingError("save_only_model=True saves what cannot be resumed; allowed: False")
        self._ranks = TorchRanks()
        self._spot = Spot(
            self._folder,
            keep=self._keep,
            ranks=self._ranks,
            fingerprint=fingerprint({"model": kwargs["model"]}),
        )

    def resume_from(self) -> str | None:
        """Return the newest whole checkpoint, for ``train(resume_from_checkpoint=...)``; None: begin."""
        saved = self._ready().restore()
        return None if saved is None else str(saved.part(0))

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Remove the folders in which the Trainer was killed."""
        if self._ranks.rank == 0:
            for left in Path(args.output_dir).glob(f"checkpoint-*/{INCOMPLETE}"):
                shutil.rmtree(left.parent)

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> TrainerControl:
        """Ask for a save where one is due or the end was told: all ranks at the same step."""
        self._told, due = self._ranks.any(*self._ready().asks(state.global_step, state.max_steps))
        control.should_save |= self._told or due
        self._mark(args, state, control)
        return control

    def on_epoch_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """The Trainer's own strategy may save here."""
        self._mark(args, state, control)

    def on_save(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Take over what the Trainer has written."""
        written = Path(args.output_dir) / f"checkpoint-{state.global_step}"
        self._ranks.gather("")  # every rank has written its random numbers
