"""ResNet50 on CIFAR-10, Keras on TensorFlow: ``KERAS_BACKEND=tensorflow python train.py --data DIR``."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from spot_training.keras import SpotModel

SIDE, CLASSES = 32, 10
RECORD = 1 + 3 * SIDE * SIDE
"""Bytes of a record: the label, then the red, green and blue planes. Source: CIFAR-10, "Binary version"."""
Images = tuple[np.ndarray, np.ndarray]


def cifar10(folder: Path, pattern: str) -> Images:
    """Return images and labels of the binary version's files that match ``pattern``, in any subdirectory."""
    files = sorted(folder.rglob(pattern))
    if not files:
        raise SystemExit(f"--data {folder} has no {pattern}; download CIFAR-10's binary version (README.md)")
    for path in files:
        if path.stat().st_size % RECORD:
            raise SystemExit(
                f"{path} must have a multiple of {RECORD} bytes, not {path.stat().st_size}; download it again"
            )
    records = np.concatenate([np.fromfile(path, "uint8").reshape(-1, RECORD) for path in files])
    images = records[:, 1:].reshape(-1, 3, SIDE, SIDE).transpose(0, 2, 3, 1)
    return images, records[:, 0].astype("int32")


def synthetic(count: int) -> Images:
    """Return noise with a bright row that gives the label away."""
    random = np.random.default_rng(7)
    images = random.integers(0, 64, (count, SIDE, SIDE, 3), "uint8")
    labels = random.integers(0, CLASSES, count, "int32")
    for image, label in zip(images, labels, strict=True):
        image[3 * label + 1] += 160
    return images, labels


def build(learning_rate: float) -> keras.Model:
    """Return a compiled ResNet50 for 32 × 32 images."""
    inputs = keras.Input((SIDE, SIDE, 3), dtype="uint8")
    pixels = keras.layers.Rescaling(1 / 127.5, offset=-1)(inputs)
    outputs = keras.applications.ResNet50(weights=None, input_tensor=pixels, classes=CLASSES).output
    model = keras.Model(inputs, outputs, name="resnet50")
    optimizer = keras.optimizers.SGD(learning_rate, momentum=0.9)
    model.compile(optimizer, "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def main() -> None:
    """Train; after an interruption, resume at the batch. The log is a CSV file in ``$GPU_SPOT_ARTIFACTS``."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=os.environ.get("GPU_SPOT_DATASETS", "."))
    parser.add_argument("--synthetic", type=int, metavar="N", help="N generated images in place of --data")
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--learning-rate", type=float, default=0.01)
    parser.add_argument("--log-every", type=int, default=100, help="batches from row to row of the log")
    arguments = parser.parse_args()
    keras.utils.set_random_seed(1)
    tf.config.experimental.enable_op_determinism()  # the same bits after each restart
    if arguments.synthetic:
        (x, y), validation = synthetic(arguments.synthetic), synthetic(arguments.batch_size)
    else:
        x, y = cifar10(arguments.data, "data_batch_*.bin")
        validation = cifar10(arguments.data, "test_batch.bin")
    results = Path(os.environ.get("GPU_SPOT_ARTIFACTS", "."))
    model = build(arguments.learning_rate)
    spot = SpotModel(model, log=results / "training_log.csv", log_every=arguments.log_every)
    spot.fit(
        x, y, batch_size=arguments.batch_size, epochs=arguments.epochs, validation_data=validation, verbose=2
    )
    np.savez(results / "weights.npz", *model.get_weights())  # without a timestamp: the same bits


if __name__ == "__main__":
    main()
