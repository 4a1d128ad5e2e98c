"""Service 2, `ocr`: a Keras model reads batches of lines. ``spot-work recognise:read --batch 16``.

``OCR_MODEL`` chooses the model; there is no default, so that a machine without Keras does not serve another
model unnoticed. ``keras``: one dense layer, on the GPU of the Keras backend. ``numpy``: the same weights
without Keras, for tests and demos; it sleeps for as long as a batch on a GPU is assumed to take.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import Final

import glyphs
import numpy as np

MODEL: Final = "OCR_MODEL"
"""Environment variable with the model's name."""
NUMPY_SECONDS: Final = 0.04
"""Time of a batch of the numpy model."""
KERAS_ROWS: Final = 256
"""The Keras model's batches are padded to a multiple of so many characters."""
_CHARACTERS: Final = " " + "".join(glyphs.GLYPHS)
_PIXELS: Final = glyphs.WIDTH * glyphs.HEIGHT


def weights() -> tuple[np.ndarray, np.ndarray]:
    """Return the weights and biases of a layer that is largest for the character with the same pixels.

    The distance of pixels p to a glyph g is p·p - 2 p·g + g·g; p·p is the same for all glyphs.
    """
    bitmaps = np.stack([np.zeros(_PIXELS, np.float32), *(g.ravel() for g in glyphs.GLYPHS.values())])
    return 2 * bitmaps.T, -(bitmaps**2).sum(axis=1)


def _keras_model() -> Callable[[np.ndarray], np.ndarray]:
    import keras

    model = keras.Sequential([keras.Input((_PIXELS,)), keras.layers.Dense(len(_CHARACTERS))])
    model.set_weights(weights())

    def scores(pixels: np.ndarray) -> np.ndarray:
        # A model is compiled for each size of its input: few sizes, and the first before the worker is ready.
        padded = np.pad(pixels, ((0, -len(pixels) % KERAS_ROWS), (0, 0)))
        return np.asarray(model.predict_on_batch(padded))[: len(pixels)]

    scores(np.zeros((1, _PIXELS), np.float32))
    return scores


def _numpy_model() -> Callable[[np.ndarray], np.ndarray]:
    kernel, bias = weights()

    def scores(pixels: np.ndarray) -> np.ndarray:
        time.sleep(NUMPY_SECONDS)
        return pixels @ kernel + bias

    return scores


_MODELS: Final = {"keras": _keras_model, "numpy": _numpy_model}
if os.environ.get(MODEL) not in _MODELS:
    raise ValueError(f"{MODEL} must be {' or '.join(_MODELS)}, not {os.environ.get(MODEL, 'unset')}")
_scores: Final = _MODELS[os.environ[MODEL]]()


def read(lines: Sequence[bytes]) -> list[str]:
    """Return the text of each line; the characters of all lines are one batch of the model."""
    cells = [_cells(line) for line in lines]
    counts = [len(of_line) for of_line in cells]
    best = iter(_scores(np.concatenate(cells)).argmax(axis=1))
    return ["".join(_CHARACTERS[next(best)] for _ in range(count)).rstrip() for count in counts]


def _cells(line: bytes) -> np.ndarray:
    """Return the pixels of each character of a line: (characters, pixels)."""
    pitch = glyphs.WIDTH + glyphs.GAP
    rows = np.frombuffer(line, np.uint8).reshape(glyphs.HEIGHT, -1).astype(np.float32)
    rows = np.pad(rows, ((0, 0), (0, -rows.shape[1] % pitch)))
    cells = rows.reshape(glyphs.HEIGHT, -1, pitch)[:, :, : glyphs.WIDTH]
    return cells.transpose(1, 0, 2).reshape(-1, _PIXELS)
