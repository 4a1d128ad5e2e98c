"""Ranks of a training as threads of one process."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from spot_training import SpotTrainingError
from support.waiting import TIMEOUT_SECONDS


class Thread:
    """A rank of a training in threads."""

    def __init__(self, rank: int, size: int, texts: list[str], barrier: threading.Barrier) -> None:
        self.rank, self.size, self._texts, self._barrier = rank, size, texts, barrier

    def gather(self, text: str) -> Sequence[str]:
        self._texts[self.rank] = text
        self._barrier.wait(TIMEOUT_SECONDS)
        gathered = list(self._texts)
        self._barrier.wait(TIMEOUT_SECONDS)
        return gathered


def together(size: int, act: object) -> list[object]:
    texts, barrier, ends = [""] * size, threading.Barrier(size), [None] * size

    def rank(number: int) -> None:
        try:
            ends[number] = act(Thread(number, size, texts, barrier))  # type: ignore[operator]
        except SpotTrainingError as error:
            ends[number] = error  # type: ignore[call-overload]

    threads = [threading.Thread(target=rank, args=(number,)) for number in range(size)]
    for one in threads:
        one.start()
    for one in threads:
        one.join(120)
    return list(ends)
