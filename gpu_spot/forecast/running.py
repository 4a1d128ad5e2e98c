"""Runs replays and the program in processes; the program's state is global to a process."""

from __future__ import annotations

import logging
import multiprocessing
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from functools import partial
from typing import TypeAlias

from gpu_spot.declared.stackfile import StackConfig
from gpu_spot.forecast import fixed_costs
from gpu_spot.forecast.ranges import SlotForecast
from gpu_spot.forecast.replayed import Question, Traces, forecast_slot
from gpu_spot.preflight.stack import Stack, declare
from infra.schema import Settings

ProgressCallback: TypeAlias = Callable[[int, int], None]
"""Receives the number of completed questions and the total."""


@contextmanager
def processes(count: int) -> Iterator[ProcessPoolExecutor]:
    """Yield a process pool; pending work is cancelled when the body ends."""
    # The fork server preloads the imports; forking a process with threads is not safe.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    pool = ProcessPoolExecutor(count, mp_context=context)
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


def forecast_slots(
    questions: Sequence[Question],
    recorded: Traces | None,
    pool: ProcessPoolExecutor,
    on_progress: ProgressCallback,
) -> list[SlotForecast]:
    """Answer questions in parallel; return the forecasts in their order."""
    futures = {pool.submit(forecast_slot, question, recorded): question for question in questions}
    results: dict[Question, SlotForecast] = {}
    for future in as_completed(futures):
        results[futures[future]] = future.result()
        on_progress(len(results), len(questions))
    return [results[question] for question in questions]


def declared(
    versions: Sequence[tuple[StackConfig, Settings]], pools: Sequence[ProcessPoolExecutor]
) -> list[Callable[[], Stack]]:
    """Start the program with stack files; return functions that wait for the declared resources.

    Versions that declare the same resources share a run. There is one pool for each version.
    """
    runs: dict[str, Future[Stack]] = {}
    waits: list[Callable[[], Stack]] = []
    for (config, settings), pool in zip(versions, pools, strict=True):
        reduced, times = fixed_costs.reduce_entries(config)
        likeness = fixed_costs.likeness(reduced)
        if likeness not in runs:
            runs[likeness] = pool.submit(declare_silently, reduced)
        waits.append(partial(_whole, runs[likeness], times, settings))
    return waits


def declare_silently(config: StackConfig) -> Stack:
    """Return the declared resources, without the program's warnings; runs in a separate process.

    The warnings would concern the reduced stack and repeat for each version; the caller logs those of the
    stack file.
    """
    logging.disable(logging.WARNING)
    return declare(config)


def _whole(run: Future[Stack], times: Mapping[str, int], settings: Settings) -> Stack:
    return fixed_costs.multiply(run.result(), times, settings)
