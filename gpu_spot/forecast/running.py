"""Run what takes long in processes: replays, and the program, whose state is global to one."""

from __future__ import annotations

import logging
import multiprocessing
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from functools import partial
from typing import TypeAlias

from gpu_spot.forecast import fixed_costs as standing
from gpu_spot.forecast.ranges import Outlook
from gpu_spot.forecast.replayed import Question, Traces, answer
from gpu_spot.preflight.stack import Stack, declare
from infra.schema import Settings
from pulumi_declared.stackfile import StackConfig

Answered: TypeAlias = Callable[[int, int], None]
"""Hears how many of how many questions are answered."""


@contextmanager
def processes(count: int) -> Iterator[ProcessPoolExecutor]:
    """Yield so many processes; what is not begun is dropped where the caller fails."""
    # From a server that has imported what they need: forking a process with threads is not safe.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    pool = ProcessPoolExecutor(count, mp_context=context)
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


def answers(
    asked: Sequence[Question], recorded: Traces | None, pool: ProcessPoolExecutor, told: Answered
) -> list[Outlook]:
    """Answer questions side by side, in their order."""
    begun = {pool.submit(answer, one, recorded): one for one in asked}
    found: dict[Question, Outlook] = {}
    for future in as_completed(begun):
        found[begun[future]] = future.result()
        told(len(found), len(asked))
    return [found[one] for one in asked]


def declared(
    versions: Sequence[tuple[StackConfig, Settings]], pools: Sequence[ProcessPoolExecutor]
) -> list[Callable[[], Stack]]:
    """Begin to run the program with what stack files say; return how to wait for what each declares.

    Versions that declare alike share a run. There is a pool for each version, for its run alone.
    """
    runs: dict[str, Future[Stack]] = {}
    waits: list[Callable[[], Stack]] = []
    for (config, settings), pool in zip(versions, pools, strict=True):
        few, times = standing.reduced(config)
        likeness = standing.likeness(few)
        if likeness not in runs:
            runs[likeness] = pool.submit(declared_quietly, few)
        waits.append(partial(_whole, runs[likeness], times, settings))
    return waits


def declared_quietly(config: StackConfig) -> Stack:
    """Return what the program declares, in a process for this alone.

    It remarks on one entry of each kind, by its place among those, and for each version: the caller does so
    of the stack file.
    """
    logging.disable(logging.WARNING)
    return declare(config)


def _whole(run: Future[Stack], times: Mapping[str, int], settings: Settings) -> Stack:
    return standing.multiplied(run.result(), times, settings)
