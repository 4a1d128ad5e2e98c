"""Fault-tolerant ``transformers.Trainer``: a callback that saves, stops and resumes."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

from transformers import TrainerCallback

from spot_training.errors import SaveError, SpotTrainingError, log, say
from spot_training.identity import TrainingRun
from spot_training.interval import Interval
from spot_training.spot import Spot
from spot_training.torch import callbacks, growth
from spot_training.torch.ranks import TorchRanks
from spot_training.torch.state import copy_to_cpu, fingerprint, read, write

INCOMPLETE: Final = "checkpoint-is-incomplete.txt"
"""The Trainer's marker of a folder that its resume ignores (trainer_jit_checkpoint.py)."""
RANDOM_STATE: Final = "rng_state_{}.pth"
"""The random number state of each rank (Trainer._save_rng_state)."""
EXTRA_STATE: Final = "spot_training-{}.pt"
"""What the Trainer's checkpoint lacks, of each rank: see ``SpotCallback._values``."""


class SpotCallback(TrainerCallback):
    """Makes the Trainer save when due and on a notice; after a notice it ends the process.

    The Trainer writes ``checkpoint-N`` to its ``output_dir``, file by file. The callback copies it, by hard
    links on the same disk, to an atomic checkpoint and deletes it unless ``load_best_model_at_end`` needs it;
    so also saves of ``save_strategy``. With ``metric_for_best_model`` the best checkpoint stays. Several
    ranks share the disk of ``output_dir``.
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
        self._options |= {"interval": interval, "local": local}
        self._folder, self._settings = folder, settings
        self._spot: Spot | None = None
        self._is_stopping = self._is_training = self._saves_epoch = False
        self._save_started_at = 0.0
        self._trainer: Any = None
        self._extra: Any = None
        self._restored_step: int | None = None

    def on_init_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Create the checkpointer; checkpoints of another model are rejected."""
        self._trainer = _caller()
        if getattr(args, "enable_jit_checkpoint", False):
            raise SpotTrainingError(
                "enable_jit_checkpoint must be False with SpotCallback, as both would handle SIGTERM"
            )
        if args.save_only_model:
            raise SpotTrainingError("save_only_model=True saves what cannot be resumed; set it to False")
        by_length = getattr(args, "train_sampling_strategy", "") == "group_by_length"
        if by_length or getattr(args, "group_by_length", False):
            raise SpotTrainingError(
                "group_by_length must not be used, because its order in an epoch differs in a new process"
            )
        if getattr(args, "fsdp", None) or getattr(args, "deepspeed", None):
            raise SpotTrainingError(
                "fsdp and deepspeed are not supported, because they divide the state among the "
                "ranks; set neither"
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
        self._first = growth.module_attributes({"model": kwargs["model"]})
        self._of_trainer = set(vars(self._trainer or self))

    def resume_from(self) -> str | None:
        """Return the newest checkpoint for ``train(resume_from_checkpoint=...)``; None: start at step 0."""
        saved = self._get_spot().restore()
        self._restored_step = 0 if saved is None else saved.step
        file = None if saved is None else saved.part(0) / EXTRA_STATE.format(self._ranks.rank)
        self._extra = read(file) if file is not None and file.exists() else None
        if self._trainer is not None:
            self._added = vars(self._trainer).keys() - self._of_trainer
            # The last callback sees, and restores, what the others have set.
            self._trainer.callback_handler.callbacks.sort(key=lambda callback: callback is self)
        return None if saved is None else str(saved.part(0))

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Remove incomplete folders; restore what the Trainer leaves out; refuse another step's beginning."""
        if self._restored_step is None:
            self.resume_from()
        if self._restored_step != state.global_step:
            raise SpotTrainingError(
                f"the Trainer begins at step {state.global_step}, and the newest checkpoint has step"
                f" {self._restored_step}; use train(resume_from_checkpoint=spot.resume_from())"
            )
        if self._trainer is not None:
            self._marks = callbacks.marks(self._owners(), self._trainer.model)
            if self._extra is not None:
                if loss := self._extra["loss"]:
                    self._trainer._tr_loss.copy_(loss.pop("_tr_loss"))
                    vars(self._trainer).update(loss)
                # In the middle of an epoch after what callbacks do again at its beginning.
                if float(state.epoch or 0.0).is_integer():
                    self.on_epoch_begin(args, state, control)
        self._get_spot().steps = state.max_steps
        self._is_training = True
        if self._ranks.rank == 0:
            for mark in Path(args.output_dir).glob(f"checkpoint-*/{INCOMPLETE}"):
                shutil.rmtree(mark.parent)

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Restore the model's and the callbacks' values once."""
        extra, self._extra = self._extra, None
        if extra is not None and self._trainer is not None:
            owners, trainer = self._owners(), self._trainer
            callbacks.restore(owners, trainer.model, extra["callbacks"])
            vars(trainer).update(vars(owners[-1]))
            growth.set_flags({"model": trainer.model}, extra["flags"])
            growth.set_rates(trainer.optimizer, extra["rates"])

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Request a save if due, on all ranks at the same step; a last save skips the evaluation.

        Of an epoch's last step at the epoch's end: what callbacks, log and evaluation do there counts. But
        with ``save_strategy="best"`` the Trainer drops there what is not the best.
        """
        spot = self._get_spot()
        spot.progress.report(state.global_step, spot.steps)
        is_end = state.global_step >= state.max_steps
        is_save_due = self._ranks.rank == 0 and (is_end or spot.should_save())
        self._is_stopping, is_save_due = self._ranks.any(spot.should_stop(), is_save_due)
        is_save_due |= self._is_stopping or control.should_save
        is_epoch_end = float(state.epoch or 0.5).is_integer() and args.save_strategy != "best"
        self._saves_epoch = is_save_due and is_epoch_end
        control.should_save = is_save_due and not self._saves_epoch
        self._mark(args, state, control)

    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Request the save of the last step, and mark the folder: the save strategy may save here."""
        control.should_save |= self._saves_epoch
        self._saves_epoch = False
        self._mark(args, state, control)

    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
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

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Copy the Trainer's checkpoint; exit if a notice was received."""
        written = Path(args.output_dir) / f"checkpoint-{state.global_step}"
        if self._trainer is not None:
            write(written / EXTRA_STATE.format(self._ranks.rank), copy_to_cpu(self._values()))
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
            log.warning("saved at step %d; stopping for the interruption", state.global_step)
            raise SystemExit(0)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Report the end to the agent; raise the error of a failed last save."""
        self._is_training = False
        self._get_spot().finish(state.global_step)

    def _values(self) -> dict[str, Any]:
        """Return the loss that the Trainer accumulates (``_run_training``), and what its checkpoint has not.

        Of the model see `growth.flags`; of callbacks and a subclass see `callbacks.take`; of the optimizer
        the rates, which a callback may set again at the epoch's beginning.
        """
        trainer = self._trainer
        names = ("_tr_loss", "_total_loss_scalar", "_globalstep_last_logged", "_initial_global_step")
        return {
            "loss": {name: getattr(trainer, name) for name in names if hasattr(trainer, name)},
            "callbacks": callbacks.take(self._owners(), trainer.model, self._marks),
            "flags": growth.flags({"model": trainer.model}, self._first),
            "rates": growth.rates(trainer.optimizer),
        }

    def _owners(self) -> list[Any]:
        """Return what may have values: the script's callbacks, those with a state, what a subclass adds."""
        owners = [
            callback
            for callback in self._trainer.callback_handler.callbacks
            if callback is not self
            and (hasattr(callback, "state") or not type(callback).__module__.startswith("transformers."))
        ]
        added = {name: value for name, value in vars(self._trainer).items() if name in self._added}
        return [*owners, SimpleNamespace(**added)]

    def _mark(self, args: Any, state: Any, control: Any) -> None:
        """Skip a due evaluation at a notice; mark the folder that the Trainer is about to write.

        Files of a killed process are removed.
        """
        if self._is_stopping and control.should_evaluate:
            control.should_evaluate = False
            if self._ranks.rank == 0:
                text = f"the evaluation after step {state.global_step} is skipped"
                say(f"{text}: callbacks do not see its metrics")
        if control.should_save and self._ranks.rank == 0:
            folder = Path(args.output_dir) / f"checkpoint-{state.global_step}"
            if (folder / INCOMPLETE).exists():
                shutil.rmtree(folder)
            folder.mkdir(parents=True, exist_ok=True)
            (folder / INCOMPLETE).touch()
        self._save_started_at = time.monotonic()

    def _copy_into(self, written: Path, copy: Callable[[str, str], object], destination: Path) -> None:
        """Copy all of the Trainer's files to the checkpoint, as files of rank 0."""
        if self._ranks.rank:
            return
        for name in map(RANDOM_STATE.format, range(self._ranks.size)):
            if self._ranks.size > 1 and not (written / name).exists():
                raise SaveError(f"{written} has no {name}; use an output_dir on a disk that all ranks see")
        ignore = shutil.ignore_patterns(INCOMPLETE)
        shutil.copytree(written, destination, copy_function=copy, ignore=ignore, dirs_exist_ok=True)

    def _get_spot(self) -> Spot:
        if self._spot is None:
            raise SpotTrainingError("SpotCallback has no Trainer; pass it by Trainer(..., callbacks=[spot])")
        return self._spot


def _link(source: str, destination: str) -> None:
    try:
        os.link(source, destination)
    except OSError:  # another disk
        shutil.copy2(source, destination)


def _caller() -> Any:
    """Return the Trainer whose callback is running, from the stack: callbacks do not get it. Else None."""
    frame = sys._getframe(1)
    while frame is not None:
        owner = frame.f_locals.get("self")
        if hasattr(owner, "callback_handler") and hasattr(owner, "train"):
            return owner
        frame = frame.f_back  # type: ignore[assignment]
    return None
