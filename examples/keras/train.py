"""Fault-tolerant training with Keras, on generated points: ``KERAS_BACKEND=jax python train.py``."""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import keras
import numpy

from spot_training.keras import SpotModel

POINTS = 4096


class Slow(keras.callbacks.Callback):
    """Waits after each batch, to slow the training down."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._seconds = seconds

    def on_train_batch_end(self, batch: int, logs: dict[str, float] | None = None) -> None:
        """Wait."""
        time.sleep(self._seconds)


def main() -> None:
    """Train, resuming after an interruption, and write the weights to ``$GPU_SPOT_ARTIFACTS``."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--pause", type=float, default=0.0, help="extra seconds per batch")
    arguments = parser.parse_args()
    keras.utils.set_random_seed(1)
    points = numpy.random.default_rng(7).uniform(-1, 1, (POINTS, 2)).astype("float32")
    inside = ((points**2).sum(axis=1) < 0.5).astype("float32")
    dense = keras.layers.Dense
    model = keras.Sequential(
        [keras.Input((2,)), dense(64, "tanh"), keras.layers.Dropout(0.1), dense(1, "sigmoid")]
    )
    model.compile(optimizer=keras.optimizers.AdamW(0.01), loss="binary_crossentropy", metrics=["accuracy"])
    spot = SpotModel(model)
    spot.fit(
        points, inside, batch_size=64, epochs=arguments.epochs, callbacks=[Slow(arguments.pause)], verbose=2
    )
    results = Path(os.environ.get("GPU_SPOT_ARTIFACTS", "."))
    numpy.savez(results / "weights.npz", *model.get_weights())  # without a timestamp: reproducible bits


if __name__ == "__main__":
    main()
