"""Run a function in a separate process, because Pulumi's runtime and moto's backends are global.

Processes are forked from a server that has imported the common modules: importing those of the provider takes
longer than running a program.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import multiprocessing
import os
import pickle
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any, Final, ParamSpec, TypeVar

from tests.waiting import TIMEOUT_SECONDS

SHARED_VARIABLE: Final = "GPU_SPOT_TESTS_SHARED"
"""Variable with a directory that all workers of a session share."""


P = ParamSpec("P")
R = TypeVar("R")


@cache
def _forking() -> ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.preloaded"])
    return context


def apart(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Run a module-level function in a new process; return its result or raise its exception.

    Raises ``TimeoutError`` after twice ``TIMEOUT_SECONDS``.
    """
    with ProcessPoolExecutor(1, mp_context=_forking()) as pool:
        future = pool.submit(function, *args, **kwargs)
        try:
            return future.result(timeout=2 * TIMEOUT_SECONDS)  # it computes
        except TimeoutError:
            for process in pool._processes.values():
                process.kill()  # else the end of the block waits for it
            raise


def made_once(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Like ``apart``, once for all workers of a session: the first that asks runs it, the others wait."""
    name = f"{function.__module__}.{function.__qualname__}{args}{kwargs}".encode()
    known = Path(os.environ[SHARED_VARIABLE], f"{hashlib.sha256(name).hexdigest()}.pickle")
    with known.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not known.exists():
            known.write_bytes(pickle.dumps(apart(function, *args, **kwargs)))
    made: R = pickle.loads(known.read_bytes())
    return made


def in_json(function: Callable[P, Any], *args: P.args, **kwargs: P.kwargs) -> Any:
    """Like ``apart``, with the result converted to JSON values."""
    return json.loads(apart(_dumped, function, *args, **kwargs))


def _dumped(function: Callable[P, Any], *args: P.args, **kwargs: P.kwargs) -> str:
    return json.dumps(function(*args, **kwargs))
