"""Worker reports: the request counts and GPU use in a service's heartbeats."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from contracts.agent.config import Service
from contracts.group.release import WorkerRelease
from contracts.registry import batches as batch_table
from contracts.registry.batches import BatchRow
from contracts.registry.worker_report import WorkerReport
from userdata.agent.machine import log
from userdata.agent.machine.background import BackgroundPoller, BackgroundRunner
from userdata.agent.machine.clock import Clock
from userdata.agent.metrics.gpus import GpuSample
from userdata.agent.work import worker_report_file
from userdata.agent.work.failures.faults import FATAL_XIDS

GPU_POLL_INTERVAL_SECONDS: Final = 10.0
"""Seconds between two samples of the GPUs."""
BUSY_SECONDS: Final = 60.0
"""Window of the mean GPU utilization."""
RATE_SECONDS: Final = batch_table.WINDOW_SECONDS
"""Window of the request rate and the batches; the interval between two reports if that is longer."""
GPU_SECONDS: Final = 60.0
"""Time limit of a sample: a driver may hang."""
_MIN_RATE_SECONDS: Final = 10.0
"""Minimum time span of a rate."""
_NOTHING: Final = worker_report_file.RequestCounts(0, 0, None, 0.0)
_MAX_CLOCK_SKEW_SECONDS: Final = 60.0
"""Maximum time by which a file may be newer than the clock; a report further ahead is rejected."""


def gpu_poller(
    sample: Callable[[], GpuSample], run_in_background: BackgroundRunner, clock: Clock
) -> BackgroundPoller[GpuSample]:
    """Return the poller of `WorkerReports`."""
    return BackgroundPoller("GPUs", sample, run_in_background, clock, GPU_SECONDS, GPU_POLL_INTERVAL_SECONDS)


def version(service: Service) -> str:
    """Return the release version that the workers of a service run."""
    queue = () if service.queue is None else (service.queue,)
    worker = service.image or "", service.command, service.environment
    return WorkerRelease(*worker, service.secrets, queue).version


class RequestRate:
    """Requests per second and the share of busy time, computed from reported counts; pure."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, int, float | None]] = deque(maxlen=64)

    def update(self, done: int, at: float, busy: float | None = None) -> tuple[float, float | None]:
        """Add a sample and return the rate and the busy share.

        Args:
            done: completed requests at ``at`` (epoch seconds).
            at: time of the sample.
            busy: busy seconds so far; None if not reported.

        Returns:
            A rate of 0 if the time span is too short; a share of None if unknown.
        """
        if self._samples:
            last, before, worked = self._samples[-1]
            if done < before or at < last or (busy or 0.0) < (worked or 0.0):
                self._samples.clear()  # another process or a clock change
        if not self._samples or at > self._samples[-1][0]:
            self._samples.append((at, done, busy))
        while len(self._samples) > 2 and at - self._samples[1][0] >= RATE_SECONDS:
            self._samples.popleft()
        (first, start, idle), (last, end, worked) = self._samples[0], self._samples[-1]
        if last - first < _MIN_RATE_SECONDS:
            return 0.0, None
        share = None if idle is None or worked is None else min(1.0, (worked - idle) / (last - first))
        return (end - start) / (last - first), share


class RecentBatches:
    """The batches of the last minutes by size, computed from counts since the worker's start; pure."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, int, tuple[BatchRow, ...]]] = deque(maxlen=64)

    def update(self, done: int, at: float, rows: tuple[BatchRow, ...]) -> tuple[BatchRow, ...]:
        """Add the counts at ``at`` (epoch seconds) and return the batches since `RATE_SECONDS` before."""
        if self._samples and (done < self._samples[-1][1] or at < self._samples[-1][0]):
            self._samples.clear()  # another process or a clock change
        if not self._samples or at > self._samples[-1][0]:
            self._samples.append((at, done, rows))
        while len(self._samples) > 2 and at - self._samples[1][0] >= RATE_SECONDS:
            self._samples.popleft()
        return batch_table.difference(rows, self._samples[0][2])


@dataclass(eq=False)
class WorkerReports:
    """Builds the reports of the workers in ``directory``.

    Args:
        gpus: the indexes of each slot's GPUs, in PCI order; a report names the first one.
        gpu_poller: samples the GPUs in the background, as a driver may hang; None without NVML.
    """

    gpus: Mapping[int, Sequence[int]]
    gpu_poller: BackgroundPoller[GpuSample] | None
    clock: Clock
    directory: Path

    def __post_init__(self) -> None:
        self._versions: dict[int, str] = {}
        self._uuids: dict[int, str] = {}
        self._busy: dict[int, deque[tuple[float, float]]] = {}
        self._xids: dict[str, int] = {}
        self._starts: dict[int, int] = {}
        self._rates: dict[int, RequestRate] = {}
        self._refused_rates: dict[int, RequestRate] = {}
        self._batches: dict[int, RecentBatches] = {}
        self._logged: set[int] = set()

    def record_start(self, slot: int, version: str) -> None:
        """Count a start of the worker in ``slot`` from ``version`` and reset its rate."""
        self._versions[slot] = version
        self._starts[slot] = self._starts.get(slot, 0) + 1
        self._rates[slot] = RequestRate()
        self._refused_rates[slot] = RequestRate()
        self._batches[slot] = RecentBatches()
        self._logged.discard(slot)

    def poll(self) -> None:
        """Sample the GPUs when due; cheap to call in every loop."""
        sample = self.gpu_poller.take() if self.gpu_poller else None
        if sample is None:
            return
        now = self.clock.monotonic()
        for gpu in sample.gpus:
            self._uuids[gpu.index] = gpu.uuid
            if gpu.busy is not None:
                self._busy.setdefault(gpu.index, deque(maxlen=32)).append((now, min(gpu.busy, 100.0)))
        for uuid, code in sample.xids:
            if code in FATAL_XIDS:
                self._xids[uuid] = code

    def build(self, slot: int) -> WorkerReport:
        """Return the report of the worker in ``slot``."""
        uuids = [self._uuids.get(index, "") for index in self.gpus[slot]]
        counts = self._read_counts(slot)
        rates = self._rates.setdefault(slot, RequestRate())
        rate, busy = rates.update(counts.done, counts.at, counts.busy) if counts.at else (0.0, None)
        refused = None
        if counts.refused is not None:
            refused_rates = self._refused_rates.setdefault(slot, RequestRate())
            refused = round(refused_rates.update(counts.refused, counts.at)[0], 3)
        batches = counts.batches
        if batches is not None:
            recent = self._batches.setdefault(slot, RecentBatches())
            batches = recent.update(counts.done, counts.at, batches)
        return WorkerReport(
            version=self._versions.get(slot, ""),
            gpu=uuids[0],
            reported_at=counts.at,
            done=counts.done,
            failed=counts.failed,
            rate=round(rate, 3),
            busy=None if busy is None else round(busy, 4),
            gpu_use=self._mean_utilization(self.gpus[slot]),
            xid=next((self._xids[uuid] for uuid in uuids if uuid in self._xids), 0),
            starts=self._starts.get(slot, 0),
            batches=batches,
            batch_size=counts.batch_size,
            refused=refused,
            stopped=counts.stopped,
        )

    def _read_counts(self, slot: int) -> worker_report_file.RequestCounts:
        """Return the reported request counts; zeros if there are none or they are malformed."""
        path, now = worker_report_file.report_path(self.directory, slot), self.clock.wall()
        try:
            counts = worker_report_file.read_requests(path)
            if counts is not None and counts.at > now + _MAX_CLOCK_SKEW_SECONDS:
                raise ValueError(
                    f"the report was written {counts.at - now:.0f} s in the future; check the worker's clock"
                )
        except (OSError, ValueError) as error:
            if slot not in self._logged:
                self._logged.add(slot)
                log.warning("request counts not readable", path=str(path), error=str(error))
            return _NOTHING
        return _NOTHING if counts is None else counts._replace(at=min(counts.at, now))

    def _mean_utilization(self, indexes: Sequence[int]) -> float | None:
        since = self.clock.monotonic() - BUSY_SECONDS
        recent = [busy for index in indexes for at, busy in self._busy.get(index, ()) if at >= since]
        return round(sum(recent) / len(recent), 1) if recent else None
