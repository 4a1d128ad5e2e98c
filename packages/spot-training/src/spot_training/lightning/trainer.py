"""Questions to a Trainer: what is not saved or not resumed, and whether a validation comes next."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Mapping
from typing import Any, Final

from spot_training.errors import OtherRunError
from spot_training.identity import TAKE_OVER_VARIABLE, compare, is_taken_over
from spot_training.storage.manifest import Checkpoint
from spot_training.torch.optimization import hyperparameters

PACKAGES: Final = ("lightning.pytorch", "pytorch_lightning")


def callback_classes() -> list[Any]:
    """Return ``Callback`` of each of Lightning's packages that the script has imported, else of one."""
    installed = (name for name in PACKAGES if importlib.util.find_spec(name.split(".")[0]))
    names = [name for name in PACKAGES if name in sys.modules] or [*installed][:1]
    return [importlib.import_module(name).Callback for name in names]


def values(trainer: Any) -> dict[str, Any]:
    """Return the plain values (JSON) that the script has set in its optimizers and schedulers."""
    parts = [*trainer.optimizers, *(config.scheduler for config in trainer.lr_scheduler_configs)]
    named = {f"{type(part).__name__} {number}": part for number, part in enumerate(parts)}
    result: dict[str, Any] = json.loads(json.dumps(hyperparameters(named)))
    return result


def refuse_other_values(saved: Checkpoint, now: Mapping[str, Any]) -> None:
    """Raise ``OtherRunError`` if a checkpoint's run had other values.

    Groups that a callback such as ``BaseFinetuning`` has added before this call are not the script's.
    """
    before = saved.meta["values"]
    of_script = {
        name: groups[: len(before[name])] if isinstance(groups, list) and name in before else groups
        for name, groups in now.items()
    }
    changes = compare(before, of_script)
    if changes and not is_taken_over(saved.run):
        raise OtherRunError(
            f"{saved.path} is of a run with other values ({'; '.join(changes)}), and it stays; "
            f"use those values, another directory, or {TAKE_OVER_VARIABLE}={saved.run.get('id')}"
        )


def not_resumed(trainer: Any) -> list[str]:
    """Return what of the train loaders is not resumed."""
    limits, loaders = [], trainer.fit_loop._combined_loader.flattened
    if len(loaders) > 1:
        limits.append(f"the order of samples in an epoch of {len(loaders)} train loaders")
    elif loaders[0].problem:
        limits.append(f"the order of samples in an epoch ({loaders[0].problem})")
    elif (stream := loaders[0].stream) and stream.outlasts_epochs and trainer.limit_train_batches != 1.0:
        limits.append("the order of samples after an epoch that limit_train_batches ends")
    if trainer.reload_dataloaders_every_n_epochs:
        limits.append("train loaders that depend on more than the epoch")
    return limits


def is_validated_next(trainer: Any, remaining: int | None) -> bool:
    """Return whether a validation or an epoch's end follows before the next complete optimizer step.

    ``remaining``: batches of a stream's epoch; None if it has more.
    """
    progress = trainer.fit_loop.epoch_loop.batch_progress
    done = progress.current.ready
    counted = progress.total.ready if trainer.check_val_every_n_epoch is None else done
    every = trainer.val_check_batch
    has_period = trainer.enable_validation and every is not None and every != float("inf")
    return (remaining is not None and remaining <= trainer.accumulate_grad_batches) or any(
        done + more >= trainer.num_training_batches or (has_period and (counted + more) % every == 0)
        for more in range(1, trainer.accumulate_grad_batches + 1)
    )
