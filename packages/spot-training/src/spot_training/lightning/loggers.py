"""Rows of Lightning's CSV loggers, which a restart would delete: those up to the checkpoint stay."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from spot_training.errors import say


def positions(trainer: Any) -> list[list[Any]]:
    """Return path and rows of each CSV logger's file, after its rows in memory are written."""
    result: list[list[Any]] = []
    for logger in _csv_loggers(trainer):
        logger.save()
        rows = _read(Path(logger.experiment.metrics_file_path))
        result.append([str(Path(logger.experiment.metrics_file_path).resolve()), len(rows)])
    return result


def read(saved: Sequence[Sequence[Any]]) -> list[list[dict[str, str]]]:
    """Return the rows of each file up to its position; before Lightning deletes it."""
    result = []
    for path, count in saved:
        rows = _read(Path(path))[:count]
        if len(rows) < count:
            say(f"{path} has {len(rows)} of {count} rows: earlier ones are not in the log")
        result.append(rows)
    return result


def restore(trainer: Any, rows_of_files: Sequence[list[dict[str, str]]]) -> None:
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


def _read(path: Path) -> list[dict[str, str]]:
    try:
        with path.open(newline="") as file:
            return list(csv.DictReader(file))
    except FileNotFoundError:
        return []
