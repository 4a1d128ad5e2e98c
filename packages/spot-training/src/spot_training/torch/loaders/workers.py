"""The workers of a data loader: their signals and their random numbers."""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils.data import DataLoader, get_worker_info

from spot_training.torch.loaders import generators


@contextmanager
def sigterm_blocked() -> Iterator[None]:
    """Block SIGTERM in this thread; processes that are started inside inherit that (sigprocmask(2)).

    A loader's worker handles SIGTERM when ``worker_init_fn`` runs: one that comes before would end it. A
    SIGTERM of this process is delivered afterwards.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class WorkerStart:
    """A ``worker_init_fn``: the worker ends only at SIGTERM from its parent, and its random numbers resume.

    torchrun sends SIGTERM to a rank's whole process group; without workers a step could not get its next
    batch. At the parent's exit Python terminates and joins its workers: that signal counts.
    """

    def __init__(self, then: Callable[[int], None] | None, randomness: BatchRandomness | None) -> None:
        self._then, self.randomness = then, randomness

    def __call__(self, worker: int) -> None:
        """Prepare a worker."""
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        threading.Thread(target=_end_with_parent, daemon=True).start()
        if self._then is not None:
            self._then(worker)
        information = get_worker_info()
        if self.randomness is not None and information is not None:
            self.randomness.install(information.dataset)


def prepare_workers(loader: DataLoader[Any], randomness: BatchRandomness | None) -> BatchRandomness | None:
    """Give a loader's workers a ``WorkerStart``, once; return the random numbers that they have."""
    start = loader.worker_init_fn
    if loader.num_workers and not isinstance(start, WorkerStart):
        start = loader.worker_init_fn = WorkerStart(start, randomness)
    return start.randomness if isinstance(start, WorkerStart) else None


class BatchRandomness:
    """Random numbers in a loader's workers that depend on seed, epoch and batch only, not on the worker.

    So a dataset that augments its samples by ``random``, ``numpy.random`` or ``torch`` draws the same numbers
    for the rest of an epoch in another process.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.epoch = torch.zeros(1, dtype=torch.int64).share_memory_()
        """Set by the training's process before each epoch; persistent workers see it."""

    def install(self, dataset: Any) -> None:
        """Let a dataset, in this worker, seed before each batch; one whose class is fixed stays as it is.

        So are generators that it, its transforms or its module have of their own.
        """
        base, own_generators = type(dataset), list(generators.generators_of(dataset).values())

        def fetch(samples: Any, indices: list[int]) -> Any:
            self.set(indices[0])
            for number, generator in enumerate(own_generators):
                generators.seed(generator, random.getrandbits(62) + number)
            self.set(indices[0])
            if hasattr(base, "__getitems__"):
                return base.__getitems__(samples, indices)
            return [samples[index] for index in indices]

        with contextlib.suppress(TypeError):
            dataset.__class__ = type(base.__name__, (base,), {"__getitems__": fetch})

    def set(self, key: object) -> None:
        """Seed this process's random number generators for a batch, or for a sample of a stream."""
        text = f"{self.seed} {int(self.epoch[0])} {key}"
        number = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
        random.seed(number)
        torch.manual_seed(number)
        if numpy := sys.modules.get("numpy"):
            numpy.random.seed(number % 2**32)


def _end_with_parent() -> None:
    while signal.sigwaitinfo({signal.SIGTERM}).si_pid != os.getppid():
        pass
    os._exit(0)
