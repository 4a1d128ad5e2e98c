"""Run a slow query in the background and poll for its result."""

from __future__ import annotations

import queue
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")

BackgroundRunner = Callable[[Callable[[], None]], None]
"""Runs a function in the background, for example in a thread."""


class BackgroundPoller(Generic[T]):
    """Runs one query repeatedly in the background, at most one at a time, without blocking."""

    def __init__(self, query: Callable[[], T], run_in_background: BackgroundRunner) -> None:
        """``run_in_background`` runs the query."""
        self._query = query
        self._run_in_background = run_in_background
        self._result: queue.SimpleQueue[tuple[T] | Exception] = queue.SimpleQueue()
        self._is_running = False

    def poll(self) -> T | None:
        """Start the query unless it is running; return its result once available, else None.

        An exception of the query is raised here.
        """
        if not self._is_running:
            self._is_running = True
            self._run_in_background(self._work)
        try:
            result = self._result.get_nowait()
        except queue.Empty:
            return None
        self._is_running = False
        if isinstance(result, Exception):
            raise result
        return result[0]

    def _work(self) -> None:
        try:
            self._result.put((self._query(),))
        except Exception as error:  # raised again by poll()
            self._result.put(error)
