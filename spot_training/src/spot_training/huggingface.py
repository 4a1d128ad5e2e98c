"""``transformers.Trainer`` that survives: a callback, and where to resume from."""

from __future__ import annotations

import logging
import os
import shutil
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from spot_training.errors import SaveError, SpotTrainingError
from spot_training.interval import Interval
from spot_training.spot import Spot
from spot_training.torch.ranks import TorchRanks
from spot_training.torch.state import fingerprint

# The Trainer's own mark of a folder that is being written (trainer_jit_checkpoint.py); its resume ignores it.
INCOMPLETE: Final = "checkpoint-is-incomplete.txt"
RANDOM_STATE: Final = "rng_state_{}.pth"
"""What each of several ranks writes beside the model (Trainer._save_rng_state)."""
_log = logging.getLogger("spot_training")


class SpotCallback(TrainerCallback):
    """Lets the Trainer save when due and when told; told, it then ends the process.

    Example::

        spot = SpotCallback()
        trainer = Trainer(..., callbacks=[spot])
        trainer.train(resume_from_checkpoint=spot.resume_from())

    The Trainer writes ``checkpoint-N`` in its ``output_dir``, file by file. From there it goes into a
    checkpoint that is whole or not there (by links where both are on one disk), and the Trainer's folder
    away, unless ``load_best_model_at_end`` wants it. What the Trainer's own ``save_strategy`` saves goes the
    same way. With several ranks ``output_dir`` must be on a disk that all of them see.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str] | None = None,
        *,
        keep: int = 3,
        interval: Interval | None = None,
    ) -> None:
        """``folder``, ``keep``: see ``Checkpointer``."""
        self._folder, self._keep, self._interval = folder, keep, interval
        self._spot: Spot | None = None
        self._told = False
        self._begun = 0.0

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
            interval=self._interval,
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
        self._ready().steps = state.max_steps
        if self._ranks.rank == 0:
            for mark in Path(args.output_dir).glob(f"checkpoint-*/{INCOMPLETE}"):
                shutil.rmtree(mark.parent)

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Ask for a save where one is due, all ranks at the same step; the last one without evaluating."""
        spot = self._ready()
        spot.progress.tell(state.global_step, spot.steps)
        is_end = state.global_step >= state.max_steps
        due = self._ranks.rank == 0 and (is_end or spot.should_save())
        self._told, due = self._ranks.any(spot.should_stop(), due)
        control.should_save |= self._told or due
        control.should_evaluate &= not self._told
        self._mark(args, state, control)

    def on_epoch_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """The Trainer's own strategy may save here."""
        self._mark(args, state, control)

    def on_save(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Take over what the Trainer has written; end if we were told."""
        written = Path(args.output_dir) / f"checkpoint-{state.global_step}"
        # What stays with the Trainer it may write again, in place: no links to that.
        copy = shutil.copy2 if args.load_best_model_at_end else _link
        self._ranks.gather("")  # all ranks have written their random numbers
        self._ready().save(
            state.global_step, partial(self._take, written, copy), last=self._told, stood=self._stood
        )
        if self._ranks.rank == 0:
            if not args.load_best_model_at_end:
                shutil.rmtree(written, ignore_errors=True)
            (written / INCOMPLETE).unlink(missing_ok=True)
        if self._told:
            _log.warning("saved at step %d; it goes on elsewhere", state.global_step)
            raise SystemExit(0)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Tell the agent; raise the error of a save that was never made good."""
        self._ready().finish(state.global_step)

    def _mark(self, args: TrainingArguments, state: TrainerState, control: TrainerControl) -> None:
        """Mark the folder that the Trainer is about to write; what a killed process left in it goes away."""
        if control.should_save and self._ranks.rank == 0:
            folder = Path(args.output_dir) / f"checkpoint-{state.global_step}"
            if (folder / INCOMPLETE).exists():
                shutil.rmtree(folder)
            folder.mkdir(parents=True, exist_ok=True)
            (folder / INCOMPLETE).touch()
        self._begun = time.monotonic()

    def _stood(self) -> float:
        return time.monotonic() - self._begun

    def _take(self, written: Path, copy: Callable[[str, str], object], place: Path) -> None:
        """Put the Trainer's files into the checkpoint: all of them in rank 0's part."""
        if self._ranks.rank == 0:
            self._check_all_wrote(written)
            shutil.copytree(
                written,
                place,
                copy_function=copy,
                ignore=shutil.ignore_patterns(INCOMPLETE),
                dirs_exist_ok=True,
            )

    def _check_all_wrote(self, written: Path) -> None:
        """Raise ``SaveError`` where a rank's random numbers are not here: without them it cannot go on."""
        if self._ranks.size == 1:
            return
        for name in map(RANDOM_STATE.format, range(self._ranks.size)):
            if not (written / name).exists():
                raise SaveError(
                    f"{written} has no {name}; allowed: an output_dir on a disk that all ranks see"
                )

    def _ready(self) -> Spot:
        if self._spot is None:
            raise SpotTrainingError("SpotCallback is not the Trainer's yet: Trainer(..., callbacks=[spot])")
        return self._spot


def _link(source: str, place: str) -> None:
    try:
        os.link(source, place)
    except OSError:  # another disk
        shutil.copy2(source, place)
