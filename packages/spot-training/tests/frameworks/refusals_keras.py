"""What a Keras training refuses, and the ways to train that the kill tests leave out; prints JSON."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections import deque
from pathlib import Path
from typing import Any

os.environ.setdefault("KERAS_BACKEND", "jax")
import keras
import numpy as np

from spot_training import SpotTrainingError
from spot_training.keras import SpotModel

X = np.arange(24, dtype="float32").reshape(12, 2)
Y = X.sum(axis=1)


class Given(keras.utils.PyDataset):
    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> Any:
        return X[2 * index : 2 * index + 2] + np.float32(np.random.rand()), Y[2 * index : 2 * index + 2]


class ProgressNotes(keras.callbacks.Callback):
    """The notice comes in a batch, of a validation too."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self._left = at

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGTERM)

    on_test_batch_begin = on_train_batch_end


class Counts(keras.callbacks.Callback):
    """Sets the rate by values of many types, and by an optimizer that the model has beside its own."""

    def __init__(self) -> None:
        super().__init__()
        self._count, self.seen, self.sums = 0, deque([0.0], 2), {1: (np.zeros(1), {0})}

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self._count += 1
        self.seen.append(float(keras.random.uniform(())))
        self.sums[1][0][0] += sum(self.seen)
        self.sums[1][1].add(self._count)
        self.model.critic.iterations.assign_add(1)
        rate = self.sums[1][0][0] + len(self.sums[1][1]) + int(self.model.critic.iterations)
        self.model.optimizer.learning_rate = 1e-4 * rate


def model(units: int = 3) -> Any:
    keras.utils.set_random_seed(2)
    layers = [keras.layers.Dense(units), keras.layers.Dropout(0.2), keras.layers.Dense(1)]
    made = keras.Sequential([keras.Input((2,)), *layers])
    made.compile("adam", "mse")
    return made


def refused(what: Any) -> str:
    try:
        what()
    except SpotTrainingError as error:
        return str(error)
    return "nothing"


def train(
    place: Path,
    *,
    at: int = 0,
    data: tuple[Any, ...] = (X, Y),
    made: Any = None,
    critic: str = "",
    **more: Any,
) -> Any:
    """Train until told at a batch; return the weights, or None where it was told."""
    made, callbacks = made or model(), [ProgressNotes(at)]
    if critic:
        made.critic = keras.optimizers.Adam()
        callbacks.append(Counts())
    if critic == "built":
        made.critic.build(made.trainable_variables)
    spot = SpotModel(made, place / "checkpoints", log=place / "log.jsonl", exits=False)
    more = {"batch_size": 2, "epochs": 3, "verbose": 0, **more}
    spot.fit(*data, callbacks=callbacks, **more)
    spot.spot.close()  # the end of a process
    return None if spot.stopped else np.concatenate([one.ravel() for one in made.get_weights()]).tolist()


def interrupted(place: Path, **more: Any) -> bool:
    """Tell whether a training that was told at the seventh batch ends as one that was not."""
    whole = train(place / "whole", **more)
    return train(place / "told", at=7, **more) is None and train(place / "told", **more) == whole


def main(place: Path) -> None:
    whole = train(place / "whole")
    train(place / "a", at=8)
    results: dict[str, Any] = {"another model": refused(lambda: train(place / "a", made=model(4)))}
    train(place / "b", at=8)
    results["other data"] = refused(lambda: train(place / "b", batch_size=3))
    train(place / "c", at=8)
    results["goes on"] = train(place / "c") == whole
    results["is done"] = train(place / "c") == whole
    results["one told on its last batch"] = (train(place / "d", at=18), train(place / "d")) == (None, whole)
    results["a dataset"] = interrupted(place / "dataset", data=(Given(),))
    both = {"data": (Given(),), "validation_data": Given()}
    results["a validation"] = interrupted(place / "validation", **both)
    results["values of callbacks"] = interrupted(place / "values", critic="built")
    results["another optimizer"] = refused(lambda: train(place / "f", critic="new"))
    results["read ahead"] = refused(lambda: train(place / "e", data=(Given(workers=2),)))
    keras.config.set_dtype_policy("bfloat16")
    results["bfloat16"] = interrupted(place / "half")
    keras.config.set_dtype_policy("float32")
    fresh = SpotModel(model(), place / "i")
    results["initial_epoch"] = refused(lambda: fresh.fit(X, Y, initial_epoch=2))
    results["a generator"] = refused(lambda: fresh.fit(iter([X])))
    results["not compiled"] = refused(lambda: SpotModel(keras.Sequential([keras.layers.Dense(1)])))
    sys.stdout.write(json.dumps(results) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
