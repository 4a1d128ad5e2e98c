"""Run a function in a process of its own: Pulumi's runtime and moto's backends are global in one.

The processes are forked from a server that has imported what nearly all of them need and run nothing: the
provider's modules alone take longer to import than a program takes to run.
"""

from __future__ import annotations

import json
import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from multiprocessing.context import ForkServerContext
from typing import Any, Final, ParamSpec, TypeVar

from tests.waiting import PATIENCE

SHARED_VARIABLE: Final = "GPU_SPOT_TESTS_SHARED"
"""Names the folder that all workers of a session share, and no other session."""


P = ParamSpec("P")
R = TypeVar("R")


@cache
def _forking() -> ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.preloaded"])
    return context


def apart(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Run a module's function in a fresh process and return its result; what it raises is raised here."""
    with ProcessPoolExecutor(1, mp_context=_forking()) as pool:
        return pool.submit(function, *args, **kwargs).result(timeout=PATIENCE)


def in_json(function: Callable[P, Any], *args: P.args, **kwargs: P.kwargs) -> Any:
    """The same for a function whose result is asked as JSON's values: lists alone, and keys that are text."""
    return json.loads(apart(_dumped, function, *args, **kwargs))


def _dumped(function: Callable[P, Any], *args: P.args, **kwargs: P.kwargs) -> str:
    return json.dumps(function(*args, **kwargs))
