"""What the scripts of Lightning share: a callback that draws a curve, and the rows of a CSV logger."""

from __future__ import annotations

import csv
import sys
import time
from pathlib import Path
from typing import Any

from frameworks.wild import common


class Curve:
    """Part of a callback: marks steps and validations; its attribute has the metrics of each epoch."""

    def __init__(self, marks: common.Marks) -> None:
        super().__init__()
        self._marks = marks
        self.points: list[Any] = []

    def on_train_batch_end(self, trainer: Any, *rest: Any) -> None:
        time.sleep(0.004)
        self._marks.at("step", trainer.fit_loop.epoch_loop.batch_progress.total.ready)

    def on_validation_start(self, trainer: Any, module: Any) -> None:
        if not trainer.sanity_checking:
            self._marks.at("validation")

    def on_train_epoch_end(self, trainer: Any, module: Any) -> None:
        metrics = {name: float(value) for name, value in sorted(trainer.callback_metrics.items())}
        rates = [group["lr"] for optimizer in trainer.optimizers for group in optimizer.param_groups]
        self.points.append([trainer.current_epoch, trainer.global_step, metrics, rates])


def quiet(folder: Path) -> dict[str, Any]:
    """Return the Trainer's options that all scripts share."""
    return {
        "accelerator": "cpu",
        "devices": common.ranks(),
        "default_root_dir": folder,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }


def wait(seconds: float) -> None:
    """Take some time, in parts, as a validation does."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(0.005)


def rows(folder: Path) -> list[Any]:
    """Return what the loggers of all starts wrote for each step; a step that was taken again twice the same.

    A value that differs from an earlier one of the same step is kept beside it.
    """
    seen: dict[tuple[int, str], set[str]] = {}
    for path in sorted(folder.glob("version_*/metrics.csv")):
        with path.open() as file:
            for row in csv.DictReader(file):
                if None in row.values() or not row["step"]:
                    sys.stdout.write(f"a row was cut by a kill: {row}\n")
                    continue
                for name, value in row.items():
                    if value:
                        seen.setdefault((int(row["step"]), name), set()).add(value)
    return [[*key, *sorted(values)] for key, values in sorted(seen.items())]
