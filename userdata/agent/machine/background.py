"""A question that may take long, asked beside the loop that wants the answer."""

from __future__ import annotations

import queue
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")

Aside = Callable[[Callable[[], None]], None]
"""Does a piece of work while its caller goes on, such as a thread."""


class Beside(Generic[T]):
    """Asks one question again and again, one at a time, and never waits for it."""

    def __init__(self, ask: Callable[[], T], aside: Aside) -> None:
        """``aside`` does the asking."""
        self._ask = ask
        self._aside = aside
        self._answer: queue.SimpleQueue[tuple[T] | Exception] = queue.SimpleQueue()
        self._is_asked = False

    def poll(self) -> T | None:
        """Ask, unless that is under way; return the answer once it has come, None until then.

        Raises what the question raised.
        """
        if not self._is_asked:
            self._is_asked = True
            self._aside(self._work)
        try:
            answer = self._answer.get_nowait()
        except queue.Empty:
            return None
        self._is_asked = False
        if isinstance(answer, Exception):
            raise answer
        return answer[0]

    def _work(self) -> None:
        try:
            self._answer.put((self._ask(),))
        except Exception as error:  # it belongs to whoever polls
            self._answer.put(error)
