"""Requests of a service over all of its proxies, from the counts that each proxy writes.

A proxy counts from 0 after a restart, and its worker's counts span the worker's restarts. What cannot be read
counts as the worse case: as many requests as at the busiest proxy that can be read, or as it had before.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from contracts import codec
from contracts.registry.batches import WINDOW_SECONDS
from contracts.registry.http_state import HttpState, WorkerTraffic
from contracts.registry.proxy_state import WRITE_SECONDS, ProxyState, WorkerRequests
from contracts.stored import stored

NEW_SECONDS: Final = 300.0
"""A proxy launched this recently that has written nothing yet boots: the load balancer does not use it."""
RETENTION_SECONDS: Final = 3600.0
"""Counts of proxies and workers that are not listed at present are retained: they may be listed again."""

CountedWorker: TypeAlias = tuple[str, int]
"""Instance and slot."""


@stored(is_list=True)
@dataclass(frozen=True, slots=True)
class WorkerCounts:
    """Counts of a worker's requests at one proxy, see `WorkerRequests`."""

    done: int = 0
    failed: int = 0
    busy_seconds: float = 0.0
    request_seconds: float = 0.0

    def is_part_of(self, later: WorkerCounts) -> bool:
        """Return whether ``later`` goes on from these counts."""
        return (
            self.done <= later.done
            and self.failed <= later.failed
            and self.busy_seconds <= later.busy_seconds
            and self.request_seconds <= later.request_seconds
        )


@stored(is_list=True)
@dataclass(frozen=True, slots=True)
class Flow:
    """Requests at a proxy now, and per second since its counts before."""

    waiting: int = 0
    in_flight: int = 0
    arrival_rate: float = 0.0
    end_rate: float = 0.0
    refused_rate: float = 0.0

    def plus(self, flow: Flow) -> Flow:
        """Return the sum of both."""
        return Flow(
            self.waiting + flow.waiting,
            self.in_flight + flow.in_flight,
            self.arrival_rate + flow.arrival_rate,
            self.end_rate + flow.end_rate,
            self.refused_rate + flow.refused_rate,
        )

    def at_least(self, flow: Flow) -> Flow:
        """Return the maximum of each value."""
        return Flow(
            max(self.waiting, flow.waiting),
            max(self.in_flight, flow.in_flight),
            max(self.arrival_rate, flow.arrival_rate),
            max(self.end_rate, flow.end_rate),
            max(self.refused_rate, flow.refused_rate),
        )


@stored(is_list=True)
@dataclass(frozen=True, slots=True)
class ProxyCounts:
    """The counts of a proxy as last read, written at ``at`` (epoch seconds); workers by ``instance/slot``."""

    at: float
    arrived: int
    ended: int
    refused: int
    flow: Flow = field(default_factory=Flow)
    workers: Mapping[str, WorkerCounts] = field(default_factory=dict)


@stored(is_list=True)
@dataclass(frozen=True, slots=True)
class WorkerMeans:
    """See `WorkerTraffic`; the worker was registered at ``seen_at``, and last ended one by ``done_at``."""

    seen_at: float
    since: float
    done: int = 0
    failed: int = 0
    seconds: float = 0.0
    rate: float = 0.0
    failed_rate: float = 0.0
    busy: float = 0.0
    in_flight: float = 0.0
    done_at: float = 0.0


@stored(is_list=True)
@dataclass(frozen=True, slots=True)
class ProxyHistory:
    """The state between two polls; ``at`` is the time of the last one, None before the first."""

    at: float | None = None
    proxies: Mapping[str, ProxyCounts] = field(default_factory=dict)
    workers: Mapping[str, WorkerMeans] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ProxyReading:
    """What is known of a proxy.

    ``state`` is None if its item is missing or invalid, ``launched_at`` if EC2 does not list the instance.
    """

    state: ProxyState | None
    launched_at: float | None


@dataclass(frozen=True, slots=True)
class _Done:
    """A worker's requests at a proxy in ``seconds``."""

    seconds: float
    counts: WorkerCounts


@dataclass(frozen=True, slots=True)
class _Interval:
    """A proxy since the last poll: its counts, and what each worker did."""

    counts: ProxyCounts
    done: Mapping[str, _Done]


def observe(
    history: ProxyHistory,
    readings: Mapping[str, ProxyReading],
    starts: Mapping[CountedWorker, float],
    now: float,
) -> tuple[HttpState | None, ProxyHistory]:
    """Return the requests over all proxies, and the new history.

    The state is None at the first poll, which gives no rates, and if no proxy can be read.

    Args:
        history: what the last call returned.
        readings: all proxies that EC2 lists, and those of the history, by instance id.
        starts: the start of each registered worker's process (epoch seconds).
        now: epoch seconds.
    """
    intervals = {
        proxy: _interval(history, proxy, reading.state)
        for proxy, reading in readings.items()
        if reading.state is not None and (reading.launched_at is None or reading.state.is_fresh(now))
    }
    states = {
        proxy: reading.state
        for proxy, reading in readings.items()
        if proxy in intervals and reading.launched_at is not None and reading.state is not None
    }
    listed = {proxy for proxy, reading in readings.items() if reading.launched_at is not None}
    unreadable = [
        proxy for proxy in listed - states.keys() if not _boots(history, proxy, readings[proxy], now)
    ]
    registered = {_text(key): since for key, since in starts.items()}
    workers = _workers(history, intervals, registered, now, is_complete=not unreadable)
    new_history = ProxyHistory(now, _proxies(history, intervals, listed, workers.keys(), now), workers)
    if history.at is None or not states or now <= history.at:
        return None, new_history
    flow = _flow(history, intervals, states, unreadable, now)
    state = HttpState(
        observed_at=min(state.observed_at for state in states.values()),
        waiting=flow.waiting,
        in_flight=flow.in_flight,
        oldest_seconds=max(state.oldest_seconds for state in states.values()),
        arrival_rate=flow.arrival_rate,
        end_rate=flow.end_rate,
        refused_rate=flow.refused_rate,
        proxies=len(states) + len(unreadable),
        unreadable=len(unreadable),
        workers=tuple(_traffic(states.values(), {key: workers[key] for key in registered})),
    )
    return state, new_history


def _boots(history: ProxyHistory, proxy: str, reading: ProxyReading, now: float) -> bool:
    """Return whether a proxy is new and has written nothing yet."""
    launched_at = reading.launched_at or 0.0
    return reading.state is None and proxy not in history.proxies and now - launched_at < NEW_SECONDS


def _interval(history: ProxyHistory, proxy: str, state: ProxyState) -> _Interval:
    """Return what a proxy did since its counts before; all it did since its start if they are unknown."""
    before = history.proxies.get(proxy)
    base = before
    if base is None or state.started_at > base.at:
        base = ProxyCounts(_begin_of_process(history, before, state), 0, 0, 0)
    elif state.observed_at <= base.at:
        return _Interval(base, {})  # not written again since
    seconds = max(state.observed_at - base.at, WRITE_SECONDS)
    changes = (state.arrived - base.arrived, state.ended - base.ended, state.refused - base.refused)
    flow = Flow(state.waiting, state.in_flight, *(max(0, change) / seconds for change in changes))
    if before is not None and (base is not before or min(changes) < 0):
        # Requests between its last counts and its restart are in none of them.
        flow = flow.at_least(replace(before.flow, waiting=0, in_flight=0))
    workers = {_text((row.instance, row.slot)): _counts(row) for row in state.workers}
    done = {
        key: _Done(seconds, _difference(base.workers.get(key, WorkerCounts()), counts))
        for key, counts in workers.items()
    }
    counts = ProxyCounts(state.observed_at, state.arrived, state.ended, state.refused, flow)
    return _Interval(replace(counts, workers={**base.workers, **workers}), done)


def _begin_of_process(history: ProxyHistory, before: ProxyCounts | None, state: ProxyState) -> float:
    """Return since when the counts of a process that was not read before are new."""
    last = before.at if before is not None else history.at
    if last is None or (before is None and state.started_at < last - NEW_SECONDS):
        return state.started_at  # when its requests arrived is unknown: their mean
    return max(state.started_at, last)


def _counts(row: WorkerRequests) -> WorkerCounts:
    return WorkerCounts(row.done, row.failed, row.busy_seconds, row.request_seconds)


def _difference(before: WorkerCounts, after: WorkerCounts) -> WorkerCounts:
    """Return what was done between two counts; all of ``after`` if the worker's counts began again."""
    if not before.is_part_of(after):
        return after
    done = after.done - before.done
    return WorkerCounts(
        done,
        min(done, after.failed - before.failed),
        after.busy_seconds - before.busy_seconds,
        after.request_seconds - before.request_seconds,
    )


def _proxies(
    history: ProxyHistory, intervals: Mapping[str, _Interval], listed: Set[str], workers: Set[str], now: float
) -> dict[str, ProxyCounts]:
    """Return the counts to store, without those of workers that are neither checked nor known."""
    counts = {**history.proxies, **{proxy: interval.counts for proxy, interval in intervals.items()}}
    checked = {key for interval in intervals.values() for key in interval.done}
    return {
        proxy: replace(
            last, workers={k: count for k, count in last.workers.items() if k in workers or k in checked}
        )
        for proxy, last in counts.items()
        if proxy in listed or now - last.at < RETENTION_SECONDS
    }


def _workers(
    history: ProxyHistory,
    intervals: Mapping[str, _Interval],
    registered: Mapping[str, float],
    now: float,
    *,
    is_complete: bool,
) -> dict[str, WorkerMeans]:
    """Return the workers' counts since the start of their process, and means of the last minutes.

    While a proxy cannot be read the means stay as they are.
    """
    elapsed = 0.0 if history.at is None else max(0.0, now - history.at)
    workers = {
        key: means
        for key, means in history.workers.items()
        if key not in registered and now - means.seen_at < RETENTION_SECONDS
    }
    for key, since in registered.items():
        before = history.workers.get(key)
        done = [interval.done[key] for interval in intervals.values() if key in interval.done]
        if history.at is None or (before is not None and before.since != since):
            # Which of these requests the process before has answered is unknown.
            workers[key] = WorkerMeans(now, since)
            continue
        means = before or WorkerMeans(now, since)
        counted = replace(
            means,
            seen_at=now,
            done=means.done + sum(part.counts.done for part in done),
            failed=means.failed + sum(part.counts.failed for part in done),
            done_at=now if any(part.counts.done for part in done) else means.done_at,
        )
        workers[key] = _with_minute(counted, done, elapsed) if is_complete and elapsed else counted
    return workers


def _with_minute(means: WorkerMeans, done: Iterable[_Done], elapsed: float) -> WorkerMeans:
    """Return the means after an interval: those of all of the time, later of about `WINDOW_SECONDS`.

    A worker is idle while it has a request of no proxy: proxies choose independently of each flow.
    """
    parts = tuple(done)
    seconds = min(means.seconds + elapsed, WINDOW_SECONDS)
    weight = min(1.0, elapsed / seconds)
    idle = math.prod(1 - min(1.0, part.counts.busy_seconds / part.seconds) for part in parts)

    def mean(before: float, now: float) -> float:
        return round(before + weight * (now - before), 4)

    rate = mean(means.rate, sum(part.counts.done / part.seconds for part in parts))
    if means.seen_at - means.done_at >= WINDOW_SECONDS:
        rate = 0.0  # a mean that fades never says that nothing is done
    return replace(
        means,
        seconds=seconds,
        rate=rate,
        failed_rate=min(
            rate, mean(means.failed_rate, sum(part.counts.failed / part.seconds for part in parts))
        ),
        busy=mean(means.busy, 1 - idle),
        in_flight=mean(means.in_flight, sum(part.counts.request_seconds / part.seconds for part in parts)),
    )


def _flow(
    history: ProxyHistory,
    intervals: Mapping[str, _Interval],
    states: Mapping[str, ProxyState],
    unreadable: Iterable[str],
    now: float,
) -> Flow:
    """Return the requests at all proxies."""
    total, busiest = Flow(), Flow()
    for proxy, interval in intervals.items():
        flow = interval.counts.flow
        if proxy in states:
            total, busiest = total.plus(flow), busiest.at_least(flow)
        elif proxy in history.proxies:
            # Terminated: the requests that it received since the last poll.
            seconds = interval.counts.at - history.proxies[proxy].at
            share = seconds / (now - (history.at or 0.0))
            rates = (flow.arrival_rate * share, flow.end_rate * share, flow.refused_rate * share)
            total = total.plus(Flow(0, 0, *rates))
    for proxy in unreadable:
        before = history.proxies.get(proxy)
        total = total.plus(busiest.at_least(before.flow if before is not None else Flow()))
    return total


def _traffic(states: Iterable[ProxyState], means: Mapping[str, WorkerMeans]) -> Iterable[WorkerTraffic]:
    """Yield the requests of the workers that a proxy has checked and that are registered."""
    checked = sorted({(row.instance, row.slot) for state in states for row in state.workers})
    for instance, slot in checked:
        mean = means.get(_text((instance, slot)))
        if mean is not None:
            yield WorkerTraffic(
                instance,
                slot,
                mean.since,
                mean.done,
                mean.failed,
                mean.seconds,
                mean.rate,
                mean.failed_rate,
                mean.busy,
                mean.in_flight,
            )


def _text(key: CountedWorker) -> str:
    return f"{key[0]}/{key[1]}"


def worker_key(text: str) -> CountedWorker:
    """Return the instance and the slot of a worker in the history."""
    instance, _, slot = text.rpartition("/")
    return instance, int(slot)


def dumps(history: ProxyHistory) -> str:
    """Return the history as JSON."""
    return json.dumps(codec.dump(history), separators=(",", ":"))


def parse(text: str) -> ProxyHistory:
    """Parse the text of `dumps`; raise ``ValueError`` if it is malformed."""
    return codec.parse_text(ProxyHistory, text, "history of a service's proxies")
