"""A small Keras training with everything that has a state, for the kill tests.

``main(FOLDER)``: checkpoints in FOLDER/checkpoints, a line for each step in FOLDER/history-0;
in the end FOLDER/final.pt has the weights and the log. The model itself keeps which samples it has seen in
which epoch: so the history is what the weights descend from, not what somebody meant to feed.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("KERAS_BACKEND", "jax")
import keras
import numpy as np

from spot_training import Interval
from spot_training.keras import SpotModel

LENGTH, EPOCHS = 62, 4
WRITES = (np, "savez")
"""What writes the big file of a save."""
NAME = "training.jsonl"


class RunRecorder(keras.layers.Layer):
    """Takes the sample's number off its first column, and counts it."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self._steps = steps

    def build(self, shape: Any) -> None:
        self.seen = self.add_weight(shape=(EPOCHS * LENGTH,), initializer="zeros", trainable=False)
        self.taken = self.add_weight(shape=(), initializer="zeros", dtype="int32", trainable=False)

    def call(self, inputs: Any, training: bool = False) -> Any:
        if training:
            epoch = self.taken // self._steps
            places = keras.ops.cast(inputs[:, 0], "int32") + epoch * LENGTH
            self.seen.assign(self.seen + keras.ops.sum(keras.ops.one_hot(places, EPOCHS * LENGTH), axis=0))
            self.taken.assign(self.taken + 1)
        return inputs[:, 1:]


class History(keras.callbacks.Callback):
    """Writes step, epoch and samples of each step."""

    def __init__(self, place: Path, pause: float) -> None:
        super().__init__()
        self._file = (place / "history-0").open("a")
        self._pause = pause
        self._seen: Any = None

    def _now(self) -> tuple[int, Any]:
        [recorder] = [one for one in self.model.layers if isinstance(one, RunRecorder)]
        return int(recorder.taken.value), np.array(keras.ops.convert_to_numpy(recorder.seen.value))

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        if self._seen is None:  # the first of this process: what the checkpoint has seen
            self._seen = self._now()[1]

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        taken, seen = self._now()
        fed = np.repeat(np.arange(len(seen)), (seen - self._seen).astype(int))
        self._seen = seen
        time.sleep(self._pause)
        [epoch] = {int(one) // LENGTH for one in fed}
        line = [taken - 1, epoch, [int(one) % LENGTH for one in fed]]
        print(json.dumps(line), file=self._file, flush=True)


def settle(place: Path) -> None:
    """Let JAX keep what it has compiled, and PyTorch compute in one order."""
    if keras.backend.backend() == "torch":
        import torch

        torch.set_num_threads(1)
        torch.use_deterministic_algorithms(True)
        return
    import jax

    cache = {"compilation_cache_dir": str(place.parent / "compiled")}
    cache |= {"persistent_cache_min_entry_size_bytes": -1, "persistent_cache_min_compile_time_secs": 0}
    for name, value in cache.items():
        jax.config.update(f"jax_{name}", value)


def main(
    place: Path, *, batch: int = 4, pause: float = 0.01, every: float = 0.03, validation: bool = True
) -> None:
    """Train; ``pause`` seconds a step make room for a kill, ``every`` is the interval of saves at most."""
    settle(place)
    keras.utils.set_random_seed(7)
    numbers = np.arange(LENGTH, dtype="float32")
    x = np.concatenate([numbers[:, None], np.sin(numbers[:, None] * np.arange(1.0, 9.0))], axis=1)
    y = np.cos(numbers)
    layers = [
        RunRecorder(-(-LENGTH // batch)),
        keras.layers.Dense(32, activation="relu"),
        keras.layers.BatchNormalization(),
        keras.layers.Dropout(0.2),
        keras.layers.Dense(1),
    ]
    model = keras.Sequential([keras.Input((9,)), *layers])
    rate = keras.optimizers.schedules.CosineDecay(0.01, 100)
    model.compile(keras.optimizers.AdamW(rate, use_ema=True), "mse", metrics=["mae"])
    spot = SpotModel(
        model, place / "checkpoints", log=place / NAME, log_every=1, interval=Interval(max_seconds=every)
    )
    (place / "up-0").touch()
    spot.fit(
        x.astype("float32"),
        y,
        batch_size=batch,
        epochs=EPOCHS,
        verbose=0,
        seed=5,
        validation_data=(x[:20].astype("float32"), y[:20]) if validation else None,
        callbacks=[
            History(place, pause),
            keras.callbacks.EarlyStopping(
                "val_loss" if validation else "loss", patience=3, restore_best_weights=True
            ),
        ],
    )
    log = (place / NAME).read_bytes()
    steps = [one["step"] for one in map(json.loads, log.splitlines()) if "val_loss" not in one]
    assert not validation or steps == list(range(1, len(steps) + 1)), steps
    whole = b"".join(np.asarray(one).tobytes() for one in model.get_weights())
    (place / ".final.pt").write_bytes(whole + log)
    (place / ".final.pt").rename(place / "final.pt")
