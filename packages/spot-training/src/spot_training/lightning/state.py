"""What Lightning's own checkpoint lacks, taken and restored between two steps.

Lightning saves weights, optimizers, schedulers and callbacks with a state. This adds the loops' position, the
means of ``log``, torchmetrics, public attributes of modules and callbacks, random numbers, rows of CSV logs.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from spot_training.errors import say
from spot_training.torch import callbacks, growth, state
from spot_training.torch.loaders import generators
from spot_training.torch.state import mapped

LIGHTNING_FILE: Final = "lightning.ckpt"
"""Lightning's checkpoint, written by rank 0."""
RANK_FILE: Final = "rank.pt"
"""What Lightning's checkpoint lacks, of each rank."""
_VALUE: Final = ("value", "cumulated_batch_size", "has_reset", "_forward_cache", "_computed", "_update_count")
"""The state of one logged value (``_ResultMetric``)."""
_LOGGED: Final = (
    *("_callback_metrics", "_logged_metrics", "_progress_bar_metrics"),
    *("_first_loop_iter", "_current_fx"),
)
"""What the Trainer has logged so far (``_LoggerConnector``)."""


def dump(trainer: Any) -> Any:
    """Return Lightning's own checkpoint."""
    return trainer._checkpoint_connector.dump_checkpoint(weights_only=False)


def copy_files(trainer: Any, module: Any, loader: Any, rank: int, marks: Mapping[str, str]) -> dict[str, Any]:
    """Return copies of what a rank saves, by file name; ``marks`` of the callbacks' modules at the start."""
    order = loader.order.digest if loader.order is not None else None
    done = trainer.fit_loop.epoch_loop.batch_progress.current.ready
    per_rank = {**take(trainer, module, marks), "order": order, "loader": loader.state(done)}
    files = {LIGHTNING_FILE: state.copy_to_cpu(dump(trainer))} if rank == 0 else {}
    return {**files, RANK_FILE: state.copy_to_cpu(per_rank)}


def take(trainer: Any, module: Any, marks: Mapping[str, str]) -> dict[str, Any]:
    """Return references to the state; ``state.copy_to_cpu`` copies it."""
    results = trainer.fit_loop.epoch_loop._results
    return {
        "loops": trainer.fit_loop.state_dict(),
        "results": {
            key: {name: vars(result)[name] for name in _VALUE if name in vars(result)}
            for key, result in results.items()
            if result.is_tensor
        },
        "logged": {name: getattr(trainer._logger_connector, name) for name in _LOGGED},
        "metrics": {
            name: {"state": metric.metric_state, "count": metric._update_count}
            for name, metric in _metrics(module)
        },
        "callbacks": callbacks.take(stateless(trainer), module, marks),
        "flags": growth.flags({"module": module}, {}),
        "accumulate_grad_batches": trainer.accumulate_grad_batches,
        "should_stop": trainer.should_stop,
        "generators": [generators.states(owner) for owner in _owners(trainer, module)],
        "randomness": state.randomness(),
    }


def restore(trainer: Any, module: Any, saved: Mapping[str, Any]) -> None:
    """Restore the state in the middle of an epoch; the Trainer is about to request its next batch."""
    fit = trainer.fit_loop
    fit.load_state_dict(saved["loops"])
    _begin_as_running(fit)
    fit._data_fetcher.fetched = fit.epoch_loop.batch_progress.current.ready
    _fill_when_logged(fit.epoch_loop._results, dict(saved["results"]))
    trainer.should_stop = saved["should_stop"]
    restore_values(trainer, module, saved)
    for owner, numbers in zip(_owners(trainer, module), saved.get("generators", ()), strict=False):
        generators.set_states(owner, numbers)


def restore_values(trainer: Any, module: Any, saved: Mapping[str, Any]) -> None:
    """Restore all that a script may read after a finished training."""
    for name, value in saved["logged"].items():
        setattr(trainer._logger_connector, name, mapped(value, lambda tensor: tensor.to(module.device)))
    for name, metric in _metrics(module):
        if name in saved["metrics"]:
            for key, value in saved["metrics"][name]["state"].items():
                setattr(metric, key, mapped(value, lambda tensor: tensor.to(metric.device)))  # noqa: B023
            metric._update_count = saved["metrics"][name]["count"]
            metric._computed = None
    callbacks.restore(stateless(trainer), module, saved["callbacks"])
    growth.set_flags({"module": module}, saved.get("flags", {}))
    trainer.accumulate_grad_batches = saved["accumulate_grad_batches"]
    state.set_randomness(saved["randomness"])


def _owners(trainer: Any, module: Any) -> list[Any]:
    """Return what may have generators of its own, in this process."""
    loaders = trainer.fit_loop._combined_loader.flattened
    return [module, *trainer.callbacks, *(getattr(loader, "dataset", None) for loader in loaders)]


def _begin_as_running(loop: Any) -> None:
    """Let a loop and those in it go on as if they had never ended.

    After a restart in an epoch Lightning would not step a plateau scheduler at that epoch's end.
    """
    loop._restarting = loop._loaded_from_state_dict = False
    for inner in vars(loop).values():
        if hasattr(inner, "_restarting"):
            _begin_as_running(inner)


def _fill_when_logged(results: Any, saved: dict[str, Any]) -> None:
    """Give each logged value its saved state when the script logs it first."""
    base = type(results)

    def add(self: Any, key: str, result: Any) -> None:
        base.__setitem__(self, key, result)
        vars(result).update(saved.pop(key, {}))

    results.__class__ = type(base.__name__, (base,), {"__setitem__": add})


def _metrics(module: Any) -> Iterator[tuple[str, Any]]:
    """Yield the module's torchmetrics: their states are in no ``state_dict``, unless persistent."""
    for name, inner in module.named_modules():
        if hasattr(inner, "metric_state") and hasattr(inner, "_update_count"):
            yield name, inner


def stateless(trainer: Any) -> list[Any]:
    """Return the callbacks that inherit Lightning's empty ``state_dict``."""
    empty = "Callback.state_dict"
    return [callback for callback in trainer.callbacks if type(callback).state_dict.__qualname__ == empty]


def log_positions(trainer: Any) -> list[list[Any]]:
    """Return path and rows of each CSV logger's file, after its rows in memory are written."""
    result: list[list[Any]] = []
    for logger in _csv_loggers(trainer):
        logger.save()
        rows = _rows(Path(logger.experiment.metrics_file_path))
        result.append([str(Path(logger.experiment.metrics_file_path).resolve()), len(rows)])
    return result


def read_logs(saved: Sequence[Sequence[Any]]) -> list[list[dict[str, str]]]:
    """Return the rows of each file up to its position; before Lightning deletes it."""
    result = []
    for path, count in saved:
        rows = _rows(Path(path))[:count]
        if len(rows) < count:
            say(f"{path} has {len(rows)} of {count} rows: earlier ones are not in the log")
        result.append(rows)
    return result


def restore_logs(trainer: Any, rows_of_files: Sequence[list[dict[str, str]]]) -> None:
    """Let each CSV logger go on after its earlier rows."""
    for logger, rows in zip(_csv_loggers(trainer), rows_of_files, strict=False):
        if rows:
            writer, keys = logger.experiment, list(rows[0])
            writer.metrics_keys = keys
            with Path(writer.metrics_file_path).open("w", newline="") as file:
                rewriter = csv.DictWriter(file, keys)
                rewriter.writeheader()
                rewriter.writerows(rows)


def _csv_loggers(trainer: Any) -> list[Any]:
    loggers = ((logger, getattr(logger, "experiment", None)) for logger in trainer.loggers)
    return [logger for logger, experiment in loggers if hasattr(experiment, "metrics_file_path")]


def _rows(path: Path) -> list[dict[str, str]]:
    try:
        with path.open(newline="") as file:
            return list(csv.DictReader(file))
    except FileNotFoundError:
        return []
