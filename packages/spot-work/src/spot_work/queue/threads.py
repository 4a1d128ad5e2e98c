"""The library's threads, none of which ends without a word."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final

log: Final = logging.getLogger("spot_work")

OnFailure = Callable[[Exception], object]
"""Gets the error that ends a client or a worker."""


def start(name: str, run: Callable[[], object], on_failure: OnFailure) -> threading.Thread:
    """Start a daemon thread; an unexpected error that ends it is logged, and ends its client or worker."""

    def run_or_fail() -> None:
        try:
            run()
        except BaseException as error:
            log.exception("%s has ended", name)
            on_failure(RuntimeError(f"{name} has ended: {error!r}"))

    thread = threading.Thread(target=run_or_fail, name=name, daemon=True)
    thread.start()
    return thread
