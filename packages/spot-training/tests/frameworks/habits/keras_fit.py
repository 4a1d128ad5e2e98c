"""Habits of scripts with Keras, on JAX; see ``table``."""

from __future__ import annotations

import os
from typing import Any

os.environ.setdefault("KERAS_BACKEND", "jax")
import keras
import numpy as np

from frameworks.habits.player import Start
from frameworks.habits.table import INTERVAL, habit
from spot_training.keras import SpotModel

NUMBERS = np.arange(24, dtype="float32")
X = np.sin(NUMBERS[:, None] * np.arange(1.0, 9.0)).astype("float32")
Y = np.cos(NUMBERS)
EPOCHS = 3


class Ticks(keras.callbacks.Callback):
    def __init__(self, start: Start) -> None:
        super().__init__()
        self.start = start

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.start.tick()


def model(optimizer: Any = None, noise: float = 0.0) -> Any:
    keras.utils.set_random_seed(7)
    inner = [keras.layers.GaussianNoise(noise)] if noise else []
    inner += [keras.layers.Dense(16, "relu"), keras.layers.BatchNormalization(), keras.layers.Dropout(0.2)]
    made = keras.Sequential([keras.Input((8,)), *inner, keras.layers.Dense(1)])
    made.compile(optimizer or keras.optimizers.Adam(0.01), "mse", metrics=["mae"])
    return made


def fit(start: Start, made: Any, *callbacks: Any, x: Any = X, y: Any = Y, **options: Any) -> Any:
    spot = SpotModel(made, log=start.folder / "log.jsonl", interval=INTERVAL)
    given = {"batch_size": 4, "epochs": EPOCHS, "verbose": 0, **options}
    return spot.fit(x, y, callbacks=[*callbacks, Ticks(start)], **given)


def end(start: Start, made: Any, **values: Any) -> None:
    start.end(weights=[value.tolist() for value in made.get_weights()], **values)


@habit(
    "Keras: validation, `EarlyStopping` and `ReduceLROnPlateau`", "same", "keras.io, training and evaluation"
)
def plateau(start: Start) -> None:
    made, of = model(), keras.callbacks
    callbacks = of.EarlyStopping(patience=2), of.ReduceLROnPlateau(patience=1, factor=0.5)
    fit(start, made, *callbacks, validation_data=(X[:8], Y[:8]))
    end(start, made, rate=float(made.optimizer.learning_rate))


@habit("Keras: `LearningRateScheduler`, a schedule and EMA", "same", "keras.io examples")
def scheduled(start: Start) -> None:
    rate = keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.9 if epoch else rate)
    made = model(keras.optimizers.SGD(0.05, momentum=0.9, use_ema=True, ema_overwrite_frequency=5))
    fit(start, made, rate)
    end(start, made)


@habit("Keras: averaged weights, killed in the last epoch", "same", "keras.io, `use_ema` of optimizers")
def averaged(start: Start) -> None:
    made = model(keras.optimizers.SGD(0.05, momentum=0.9, use_ema=True))
    fit(start, made, epochs=1)
    end(start, made)


@habit("Keras: random layers of augmentation", "same", "keras.io, image classification from scratch")
def augmented(start: Start) -> None:
    made = model(noise=0.1)
    fit(start, made)
    end(start, made)


@habit("Keras: a frozen layer, then all, a `name` each", "same", "keras.io, transfer learning")
def phases(start: Start) -> None:
    made = model()
    for name, is_trained in (("frozen", False), ("all", True)):
        made.layers[0].trainable = is_trained
        made.compile(keras.optimizers.Adam(0.01), "mse")
        spot = SpotModel(made, log=start.folder / f"{name}.jsonl", interval=INTERVAL, name=name)
        spot.fit(X, Y, batch_size=4, epochs=2, verbose=0, callbacks=[Ticks(start)])
    end(start, made)


class Given(keras.utils.PyDataset):
    def __init__(self, noise: Any = None, *, shuffles: bool = False) -> None:
        super().__init__()
        self.order, self.noise, self.shuffles = np.arange(24), noise, shuffles

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> Any:
        chosen = self.order[4 * index : 4 * index + 4]
        return X[chosen] + (np.float32(self.noise()) if self.noise else 0), Y[chosen]

    def on_epoch_end(self) -> None:
        if self.shuffles:
            np.random.shuffle(self.order)


@habit(
    "Keras: a `PyDataset` that shuffles in `on_epoch_end`",
    "refused",
    "afshinea/keras-data-generator",
    "other batches",
)
def shuffles(start: Start) -> None:
    fit(start, model(), x=Given(shuffles=True), y=None)


@habit("Keras: a `PyDataset` with its own generator", "refused", "NumPy's advice since 1.17", "other batches")
def own_generator(start: Start) -> None:
    fit(start, model(), x=Given(np.random.default_rng(0).normal), y=None)


class Annealed(keras.callbacks.Callback):
    weight = 1.0

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self.weight = self.weight * 0.95
        self.model.optimizer.learning_rate = 0.01 * self.weight


@habit("Keras: a callback that counts and sets the rate", "same", "KL annealing of variational autoencoders")
def annealed(start: Start) -> None:
    made, callback = model(), Annealed()
    fit(start, made, callback)
    end(start, made, weight=callback.weight)


class Losses(keras.callbacks.Callback):
    def on_train_begin(self, logs: Any = None) -> None:
        self.worst = float("nan")
        self.losses, self.means = [self.worst], {"loss": [0.0]}

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.losses.append((logs or {})["loss"])

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.means["loss"].append(float(np.mean(self.losses[1:])))
        self.model.optimizer.learning_rate = 0.01 / len(self.means["loss"])


@habit("Keras: a callback that lists its losses", "same", "keras.io, writing your own callbacks")
def listed(start: Start) -> None:
    made, losses = model(), Losses()
    fit(start, made, losses)
    end(start, made, losses=losses.losses, means=losses.means)
