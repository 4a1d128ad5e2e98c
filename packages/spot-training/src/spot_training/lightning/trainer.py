"""Questions to a Trainer: what is not saved or not resumed, and whether a validation comes next."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from spot_training.errors import MismatchError, OtherRunError, SpotTrainingError
from spot_training.identity import TAKE_OVER_VARIABLE, compare, is_taken_over
from spot_training.storage.manifest import Checkpoint
from spot_training.torch.optimization import hyperparameters

PACKAGES: Final = ("lightning.pytorch", "pytorch_lightning")
STRATEGIES: Final = ("SingleDeviceStrategy", "DDPStrategy")
"""Those that do not divide the state among the ranks."""


def callback_classes() -> list[Any]:
    """Return ``Callback`` of each of Lightning's packages that the script has imported, else of one."""
    names = [name for name in PACKAGES if name in sys.modules]
    if not names:
        names = [name for name in PACKAGES if importlib.util.find_spec(name.split(".")[0])][:1]
    return [importlib.import_module(name).Callback for name in names]


def refuse_divided(trainer: Any, ranks: int) -> None:
    """Raise ``SpotTrainingError`` if the state is divided, or the Trainer starts processes itself."""
    kind = type(trainer.strategy).__name__
    if kind not in STRATEGIES or trainer.world_size != ranks:
        raise SpotTrainingError(
            f"{kind} with {trainer.world_size} processes is not supported; use one device, or DDP "
            "under torchrun after torch.distributed.init_process_group()"
        )


def refuse_iterators(fit: Any) -> None:
    """Raise ``SpotTrainingError`` if the script takes its batches itself."""
    if "DataLoaderIter" in type(fit._data_fetcher).__name__:
        raise SpotTrainingError(
            "training_step(dataloader_iter) has no position that can be saved; take batch instead"
        )


def refuse_other_order(order: Any, saved: str | None, path: Path) -> None:
    """Raise ``MismatchError`` if a checkpoint's epoch had another order of samples, as far as is known."""
    if order is not None and saved not in (None, order.digest):
        raise MismatchError(f"{path} was saved with other data or another sampler; use those of that run")


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


def best_models_without_dirpath(trainer: Any) -> list[str]:
    """Return a text if a ModelCheckpoint has no directory of its own: a restart's logger has another one."""
    if any(getattr(callback, "dirpath", "") is None for callback in trainer.checkpoint_callbacks):
        return ["the best models of a ModelCheckpoint without dirpath"]
    return []


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


def steps_of(trainer: Any) -> int | None:
    """Return the batches of the whole training; None if they are not known."""
    epochs, batches = trainer.fit_loop.max_epochs, trainer.num_training_batches
    return epochs * batches if epochs > 0 and batches != float("inf") else None
