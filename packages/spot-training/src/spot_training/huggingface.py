"""Fault-tolerant ``transformers.Trainer``: a callback that saves, stops and resumes."""

from __future__ import annotations

import logging
import os
import shutil
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from spot_training.errors import SaveError, SpotTrainingError
from spot_training.identity import TrainingRun
from spot_training.interval import Interval
from spot_training.spot import Spot
from spot_training.torch.ranks import TorchRanks
from spot_training.torch.state import fingerprint

INCOMPLETE: Final = "checkpoint-is-incomplete.txt"
"""The Trainer's marker of a folder that its resume ignores (trainer_jit_checkpoint.py)."""
RANDOM_STATE: Final = "rng_state_{}.pth"
"""The random number state of each rank (Trainer._save_rng_state)."""
_log = logging.getLogger("spot_training")


class SpotCallback(TrainerCallback):
    """Makes the Trainer save when due and on a notice; after a notice it ends the process.

    The Trainer writes ``checkpoint-N`` to its ``output_dir``, file by file. The callback copies it to an
    atomic checkpoint (by hard links on the same disk) and deletes the Trainer's folder, unless
    ``load_best_model_at_end`` needs it. Saves of the Trainer's ``save_strategy`` are handled the same way.
    With ``metric_for_best_model`` the best checkpoint stays.
    With several ranks ``output_dir`` must be on a disk that all of them share.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str] | None = None,
        *,
        name: str | None = None,
        keep: int = 3,
        keep_every: int | None = None,
        interval: Interval | None = None,
        settings: Mapping[str, Any] | None = None,
        local: str | os.PathLike[str] | None = None,
    ) -> None:
        """``folder``: ``location`` of ``Checkpointer``; ``name``, ``keep``, ``keep_every``: see there.

        ``settings``: what makes this run another one than the last (JSON); default: the command's arguments.
        ``local``: of ``Spot``; put ``output_dir`` there, too.
        """
        self._options: dict[str, Any] = {"name": name, "keep": keep, "keep_every": keep_every}
        self._settings = settings
        self._folder, self._options = folder, {**self._options, "interval": interval, "local": local}
        self._spot: Spot | None = None
        self._is_stopping = self._is_training = False
        self._save_started_at = 0.0

    def on_init_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Create the checkpointer; checkpoints of another model are rejected."""
        if getattr(args, "enable_jit_checkpoint", False):
            raise SpotTrainingError(
                "enable_jit_checkpoint=True: both would handle SIGTERM; allowed with SpotCallback: False"
            )
        if args.save_only_model:
            raise SpotTrainingError("save_only_model=True saves what cannot be resumed; allowed: False")
        if getattr(args, "fsdp", None) or getattr(args, "deepspeed", None):
            raise SpotTrainingError(
                "fsdp and deepspeed divide the state among the ranks: not supported; allowed: neither"
            )
        self._ranks = TorchRanks()
        self._spot = Spot(
            self._folder,
            run=TrainingRun.of_process(self._settings),
            ranks=self._ranks,
            has_randomness=False,
            fingerprint=fingerprint({"model": kwargs["model"]}),
            **self._options,
        )

    def resume_from(self) -> str | None:
        """Return the newest checkpoint for ``train(resume_from_checkpoint=...)``; None: start at step 0."""
        saved = self._get_spot().restore()
        return None if saved is None else str(saved.part(0))

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Remove incomplete folders of a killed Trainer."""
        self._get_spot().steps = state.max_steps
        self._is_training = True
        if self._ranks.rank == 0:
            for mark in Path(args.output_dir).glob(f"checkpoint-*/{INCOMPLETE}"):
                shutil.rmtree(mark.parent)

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Request a save if due, on all ranks at the same step; a last save skips the evaluation."""
        spot = self._get_spot()
        spot.progress.report(state.global_step, spot.steps)
        is_end = state.global_step >= state.max_steps
        is_save_due = self._ranks.rank == 0 and (is_end or spot.should_save())
        self._is_stopping, is_save_due = self._ranks.any(spot.should_stop(), is_save_due)
        control.should_save |= self._is_stopping or is_save_due
        control.should_evaluate &= not self._is_stopping
        self._mark(args, state, control)

    def on_epoch_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Mark the folder: the Trainer's save strategy may save here."""
        self._mark(args, state, control)

    def on_evaluate(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Request a save that stays if ``metric_for_best_model`` is the best so far."""
        if args.metric_for_best_model is None or not self._is_training or not state.global_step:
            return
        name = f"eval_{args.metric_for_best_model.removeprefix('eval_')}"
        value = (kwargs.get("metrics") or {}).get(name)
        mode = "max" if args.greater_is_better else "min"
        is_best = value is not None and self._get_spot().keep(metric=value, mode=mode)
        [is_best] = self._ranks.any(self._ranks.rank == 0 and is_best)
        control.should_save |= is_best
        if is_best:
            self._mark(args, state, control)

    def on_save(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Copy the Trainer's checkpoint; exit if a notice was received."""
        written = Path(args.output_dir) / f"checkpoint-{state.global_step}"
        # The Trainer may overwrite files that it keeps, in place: copy them instead of linking.
        copy = shutil.copy2 if args.load_best_model_at_end else _link
        self._ranks.gather("")  # all ranks have written their random number state
        self._get_spot().save(
            state.global_step,
            partial(self._copy_into, written, copy),
            last=self._is_stopping,
            paused_seconds=lambda: time.monotonic() - self._save_started_at,
        )
        if self._ranks.rank == 0:
            if not args.load_best_model_at_end:
                shutil.rmtree(written, ignore_errors=True)
            (written / INCOMPLETE).unlink(missing_ok=True)
        if self._is_stopping:
            _log.warning("saved at step %d; stopping for the interruption", state.global_step)
            raise SystemExit(0)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Report the end to the agent; raise the error of a failed last save."""
        self._is_training = False
        self._get_spot().finish(state.global_step)

    def _mark(self, args: TrainingArguments, state: TrainerState, control: TrainerControl) -> None:
        """Mark the folder that the Trainer is about to write; remove files of a killed process."""
        if control.should_save and self._ranks.rank == 0:
            folder = Path(args.output_dir) / f"checkpoint-{state.global_step}"
            if (folder / INCOMPLETE).exists():
                shutil.rmtree(folder)
            folder.mkdir(parents=True, exist_ok=True)
            (folder / INCOMPLETE).touch()
        self._save_started_at = time.monotonic()

    def _copy_into(self, written: Path, copy: Callable[[str, str], object], destination: Path) -> None:
        """Copy all of the Trainer's files to the checkpoint, as files of rank 0."""
        if self._ranks.rank == 0:
            self._check_all_wrote(written)
            ignore = shutil.ignore_patterns(INCOMPLETE)
            shutil.copytree(written, destination, copy_function=copy, ignore=ignore, dirs_exist_ok=True)

    def _check_all_wrote(self, written: Path) -> None:
        """Raise ``SaveError`` if a rank's random number state is missing: it is needed to resume."""
        for name in map(RANDOM_STATE.format, range(self._ranks.size)):
            if self._ranks.size > 1 and not (written / name).exists():
                raise SaveError(
                    f"{written} has no {name}; allowed: an output_dir on a disk that all ranks see"
                )

    def _get_spot(self) -> Spot:
        if self._spot is None:
            raise SpotTrainingError("SpotCallback has no Trainer; pass it by Trainer(..., callbacks=[spot])")
        return self._spot


def _link(source: str, destination: str) -> None:
    try:
        os.link(source, destination)
    except OSError:  # another disk
        shutil.copy2(source, destination)
