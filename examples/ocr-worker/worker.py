"""A worker of a queue: images are prepared in threads on the CPU, then a model reads a batch of them at once.

The model is a stand-in of random weights, on the CPU. What is true of it is why batches pay on a GPU, too:
for one image all weights are read from memory once, and for sixteen also once.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from spot_work import Batch, serve

PIXELS = 1024
LAYERS = 3
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"

_dice = np.random.default_rng(7)
_weights = [_dice.standard_normal((PIXELS, PIXELS), dtype=np.float32) / 32 for _ in range(LAYERS)]
_last = _dice.standard_normal((PIXELS, len(LETTERS)), dtype=np.float32)
_hands = ThreadPoolExecutor(2, "prepare")


def prepare(image: bytes) -> np.ndarray:
    """Return an image of bytes, one a pixel, as numbers around 0: cut or filled to ``PIXELS``."""
    pixels = np.frombuffer(image[:PIXELS].ljust(PIXELS, b"\0"), dtype=np.uint8)
    return pixels.astype(np.float32) / 128 - 1


def read(images: Sequence[bytes]) -> list[str]:
    """Return a letter for each image."""
    found = np.stack(list(_hands.map(prepare, images)))
    for weights in _weights:
        found = np.maximum(found @ weights, 0)
    return [LETTERS[n] for n in (found @ _last).argmax(axis=1)]


if __name__ == "__main__":
    serve(read, "ocr", os.environ["SPOT_WORK_URL"], Batch(size=16, seconds=0.01))
