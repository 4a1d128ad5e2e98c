"""The callbacks of a training for which Keras's ``fit`` may be called twice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras


class CallbackChain(keras.callbacks.CallbackList):
    """A callback list that starts and ends training once, although ``fit`` may be called twice."""

    is_started = False
    continues = False
    """This call of ``fit`` is followed by another."""

    def on_train_begin(self, logs: Any = None) -> None:
        """See ``CallbackList``."""
        if not self.is_started:
            self.is_started = True
            super().on_train_begin(logs)

    def on_train_end(self, logs: Any = None) -> None:
        """See ``CallbackList``."""
        if not self.continues or self.model.stop_training:
            self.continues = False
            super().on_train_end(logs)


def build_callback_chain(
    callbacks: Sequence[Any], model: Any, epochs: int, steps: int, verbose: Any
) -> CallbackChain:
    """Return the callback list that ``fit`` would create."""
    return CallbackChain(
        list(callbacks),
        add_history=True,
        add_progbar=verbose != 0,
        model=model,
        verbose=1 if verbose == "auto" else verbose,
        epochs=epochs,
        steps=steps,
    )
