"""Batches in an order that depends only on seed and epoch, so that an epoch can be resumed."""

from __future__ import annotations

import math
import random
from typing import Any

import keras
import numpy as np

from spot_training.errors import SpotTrainingError


class Batches(keras.utils.PyDataset):
    """Batches of arrays or of a ``PyDataset``, in a different order each epoch.

    For arrays (or nested structures of them) the samples are shuffled, for a ``PyDataset`` its batches; it
    must return the same batch for the same index. ``epoch`` selects the order, ``skip`` is the number of
    batches of it that are already done.
    """

    def __init__(
        self, x: Any, y: Any = None, sample_weight: Any = None, *, batch_size: int, shuffle: bool, seed: int
    ) -> None:
        self._source = x if isinstance(x, keras.utils.PyDataset) else None
        if self._source is not None:
            if y is not None or sample_weight is not None or self._source.num_batches is None:
                raise SpotTrainingError(
                    "x is a PyDataset, which must know its num_batches; pass it without y and sample_weight"
                )
            source = self._source
            super().__init__(source.workers, source.use_multiprocessing, source.max_queue_size)
            self._samples = int(source.num_batches)
            _refuse_changes(source)
        else:
            super().__init__()
            arrays = (x, y, sample_weight)
            self._arrays = arrays[: 3 if sample_weight is not None else 2 if y is not None else 1]
            leaves = keras.tree.flatten(self._arrays)
            sizes = {len(array) if hasattr(array, "shape") else -1 for array in leaves}
            if len(sizes) != 1 or -1 in sizes:
                raise SpotTrainingError(
                    f"x and y must be arrays of one length, or x a PyDataset; they are {type(x).__name__} "
                    f"and {type(y).__name__}"
                )
            self._samples = sizes.pop()
        self._batch_size = 1 if self._source is not None else batch_size
        self._shuffle, self._seed = shuffle, seed
        self._order: tuple[int, Any] = (-1, None)
        self.epoch = self.skip = 0

    @property
    def whole(self) -> int:
        """The number of batches of an epoch."""
        return math.ceil(self._samples / self._batch_size)

    @property
    def identity(self) -> list[int]:
        """The values that must not change for a position in an epoch to stay valid."""
        return [self._samples, self._batch_size, int(self._shuffle), self._seed]

    def __len__(self) -> int:
        return self.whole - self.skip

    def order(self, epoch: int) -> Any:
        """Return the epoch's order of samples, or of a ``PyDataset``'s batches."""
        if self._order[0] != epoch:
            # The legacy generator: its streams are frozen, those of new generators may change (NumPy NEP 19).
            drawn = np.random.RandomState([self._seed % 2**32, epoch]).permutation(self._samples)
            self._order = (epoch, drawn if self._shuffle else np.arange(self._samples))
        return self._order[1]

    def __getitem__(self, index: int) -> Any:
        begin = (index + self.skip) * self._batch_size
        chosen = self.order(self.epoch)[begin : begin + self._batch_size]
        if self._source is not None:
            return self._source[int(chosen[0])]
        return keras.tree.map_structure(lambda array: np.asarray(array[chosen]), self._arrays)

    def on_epoch_begin(self) -> None:
        """See ``PyDataset``."""
        if self._source is not None:
            self._source.on_epoch_begin()

    def on_epoch_end(self) -> None:
        """See ``PyDataset``."""
        if self._source is not None:
            self._source.on_epoch_end()


def _refuse_changes(source: Any) -> None:
    """Raise ``SpotTrainingError`` if a dataset has other batches when they are read again, or an epoch later.

    A restart begins with those of a new one. Random numbers of Python and NumPy are resumed, and may vary,
    unless batches are read ahead of the training.
    """
    states = random.getstate(), np.random.get_state()
    has_workers = source.workers > 1 or (source.workers > 0 and source.use_multiprocessing)
    is_ahead = has_workers or keras.backend.backend() == "tensorflow"

    def read() -> list[Any]:
        if not is_ahead:
            random.setstate(states[0])
            np.random.set_state(states[1])
        leaves = [*keras.tree.flatten(source[0]), *keras.tree.flatten(source[int(source.num_batches) - 1])]
        return [np.asarray(leaf).tobytes() for leaf in leaves]

    first, again = read(), read()
    source.on_epoch_end()
    if not first == again == read():
        raise SpotTrainingError(
            f"a {type(source).__name__} yields other batches when it is read again, or after on_epoch_end():"
            " a restart begins with the first ones; return the same batch for the same index, and use"
            " SpotModel.fit(shuffle=True)"
        )
    random.setstate(states[0])
    np.random.set_state(states[1])
