"""What saving costs a Keras training whose checkpoint is big: ours, Keras's own callback, a naive save.

``python overhead_keras.py FOLDER WAY SECONDS PARAMETERS``; prints JSON. ``fraction`` is the time that
training stood for saves of the time from the end of the first save to the end of the last.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("KERAS_BACKEND", "jax")
import keras
import numpy as np

from spot_training.keras import SpotModel
from spot_training.spot import Spot

EVERY = 100
"""Steps between two saves of the other two ways."""


class Stopwatch(keras.callbacks.Callback):
    """Notes when training stood, and stops it after so long."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.saves: list[tuple[float, float]] = []
        self.steps = 0
        self._end = time.monotonic() + seconds

    def around(self, owner: Any, name: str) -> None:
        """Time each call of a method that saves."""
        method = getattr(owner, name)

        def timed(*given: Any, **more: Any) -> Any:
            started_at = time.monotonic()
            try:
                return method(*given, **more)
            finally:
                self.saves.append((started_at, time.monotonic()))

        setattr(owner, name, timed)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.steps += 1
        if time.monotonic() > self._end and len(self.saves) > 1:
            self.model.stop_training = True


class Naive(keras.callbacks.Callback):
    """Saves the whole model every so many steps, over the last one."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if (batch + 1) % EVERY == 0:
            self.save()

    def save(self) -> None:
        """Save; nothing is flushed, nothing renamed."""
        self.model.save(self._path)


def main(folder: Path, way: str, seconds: float, parameters: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    keras.utils.set_random_seed(1)
    width = int((parameters / 2) ** 0.5)
    hidden = [keras.layers.Dense(width, activation="relu") for _ in range(2)]
    model = keras.Sequential([keras.Input((width,)), *hidden, keras.layers.Dense(1)])
    model.compile("adam", "mse")
    x = np.random.default_rng(0).normal(size=(8192, width)).astype("float32")
    y, epochs = x[:, :1], 10_000
    watch = Stopwatch(seconds)
    interval = None
    if way == "ours":
        spot = Spot(folder / "ours")
        watch.around(spot, "save")
        SpotModel(model, spot=spot, log=folder / "log.jsonl").fit(
            x, y, batch_size=8, epochs=epochs, callbacks=[watch], verbose=0
        )
        interval = spot.interval.seconds
        watch.saves.pop()  # the last one, at the end of training
    elif way == "framework":
        backup = keras.callbacks.BackupAndRestore(folder / "backup", save_freq=EVERY)
        watch.around(backup, "_save_model")
        model.fit(x, y, batch_size=8, epochs=epochs, callbacks=[watch, backup], verbose=0)
    else:
        naive = Naive(folder / "naive.keras")
        watch.around(naive, "save")
        model.fit(x, y, batch_size=8, epochs=epochs, callbacks=[watch, naive], verbose=0)
    stood = sum(end - started_at for started_at, end in watch.saves[1:])
    figures = {
        "fraction": round(stood / (watch.saves[-1][1] - watch.saves[0][1]), 4),
        "saves": len(watch.saves),
        "save_seconds": round(stood / (len(watch.saves) - 1), 2),
        "interval_seconds": interval,
        "steps": watch.steps,
        "parameters": model.count_params(),
    }
    sys.stdout.write(json.dumps(figures) + "\n")
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], float(sys.argv[3]), int(sys.argv[4]))
