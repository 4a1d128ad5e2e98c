"""Collection of metrics: sample every few seconds, send every minute."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from contracts import names
from contracts.agent.config import Config
from userdata.agent.machine import log
from userdata.agent.machine.background import BackgroundPoller, BackgroundRunner, Guard, in_thread
from userdata.agent.machine.clock import Clock
from userdata.agent.machine.host import Host
from userdata.agent.metrics import emf
from userdata.agent.metrics.gpus import Gpus, GpuSample
from userdata.agent.metrics.owner import UNKNOWN_SLOT, Owners

_T = TypeVar("_T")

# Bounds memory if processes start and end rapidly.
_MAX_SLOTS: Final = 128
_ANSWER_SECONDS: Final = 60.0
_UNITS: Final = {
    "SecondsSinceCheckpoint": "Seconds",
    "QueueDepth": "Count",
    names.METRIC_FREE_SPACE: "Percent",
    names.METRIC_GPU_UTILIZATION: "Percent",
    names.METRIC_GPU_MEMORY_UTILIZATION: "Percent",
    names.METRIC_GPU_MEMORY_USED: "Megabytes",
}


@dataclass(eq=False)
class Collector:
    """Collects samples and sends them as EMF lines: one for the instance, one for each of several workers.

    The driver, file systems and the CloudWatch agent are asked in the background; what does not answer has no
    value, and GPUs of a driver that does not answer count as lost.

    Args:
        gpus: None if the accelerators are not NVIDIA GPUs.
        checkpoint_age: seconds since the newest checkpoint; None without one.
        queue_depths: waiting tasks, from each worker that reports them.
        free_space: percent of the data volume that is free; None without a volume.
    """

    config: Config
    instance: str
    gpus: Gpus | None
    owners: Owners
    sink: emf.Sink
    clock: Clock
    checkpoint_age: Callable[[], float | None]
    queue_depths: Callable[[], tuple[float, ...]]
    free_space: Callable[[], float | None] = lambda: None
    run_in_background: BackgroundRunner = in_thread

    def __post_init__(self) -> None:
        queries: dict[str, tuple[str, Callable[[], Iterable[float]]]] = {
            "checkpoints": ("SecondsSinceCheckpoint", lambda: _optional(self.checkpoint_age())),
            "file system": (names.METRIC_FREE_SPACE, lambda: _optional(self.free_space())),
            "worker reports": ("QueueDepth", self.queue_depths),
        }
        self._samples = None if self.gpus is None else self._poller("GPUs", self.gpus.sample)
        self._figures = [
            (metric, self._poller(name, lambda query=query: tuple(map(float, query()))))  # type: ignore[misc]
            for name, (metric, query) in queries.items()
        ]
        self._values: dict[str, tuple[float, ...]] = {}
        self._sending = self._poller("CloudWatch agent", self.sink.flush)
        self._guard = Guard(self.clock)
        self._utilization: dict[str, list[float]] = {}
        self._memory: dict[str, list[float]] = {}
        self._uuids: dict[str, set[str]] = {}
        self._readings: dict[str, dict[str, list[float]]] = {}
        self._xids: list[tuple[str, int]] = []
        self._ecc: dict[str, int] = {}
        self._ecc_new = 0
        self._lost = 0
        self._send_at = self.clock.monotonic() + self.config.metrics.send_every_seconds

    def _poller(self, name: str, query: Callable[[], _T]) -> BackgroundPoller[_T]:
        return BackgroundPoller(name, query, self.run_in_background, self.clock, _ANSWER_SECONDS)

    def run(self, stop: Callable[[], bool] = lambda: False) -> None:
        """Call `tick` periodically until ``stop()`` is true."""
        next_tick_at = self.clock.monotonic()
        while not stop():
            self.tick()
            next_tick_at = max(next_tick_at + self.config.metrics.period_seconds, self.clock.monotonic())
            self.clock.sleep(next_tick_at - self.clock.monotonic())

    def tick(self) -> None:
        """Take a sample; send if due."""
        if self.gpus is not None and not self._guard.run("GPUs", self._take_sample, postpones=False):
            self._lost = max(self._lost, self.gpus.expected, 1)
        for metric, poller in self._figures:
            if (values := poller.take()) is not None:
                self._values[metric] = values
        if self.clock.monotonic() >= self._send_at:
            self._send_at = self.clock.monotonic() + self.config.metrics.send_every_seconds
            self.send()
        if self._sending.is_running:
            self._sending.take()

    def _take_sample(self) -> bool:
        """Add the newest sample; return whether the driver answers."""
        assert self._samples is not None
        if (sample := self._samples.take()) is not None:
            self._add(sample)
        return not self._samples.failures

    def _add(self, sample: GpuSample) -> None:
        utilization: dict[str, dict[str, float]] = {}
        memory: dict[str, float] = {}
        for gpu in sample.gpus:
            # The counter restarts at 0 when the driver is reloaded; the first sample is the baseline.
            if gpu.ecc_uncorrected is not None:
                before = self._ecc.get(gpu.uuid, gpu.ecc_uncorrected)
                self._ecc_new += max(gpu.ecc_uncorrected - before, 0)
                self._ecc[gpu.uuid] = gpu.ecc_uncorrected
            for metric, value in gpu.readings.items():
                self._readings.setdefault(metric, {}).setdefault(gpu.uuid, []).append(value)
            for process in gpu.processes:
                slot = self.owners.slot_of(process.pid)
                on = utilization.setdefault(slot, {})
                on[gpu.uuid] = on.get(gpu.uuid, 0.0) + process.utilization
                memory[slot] = memory.get(slot, 0.0) + (process.memory_mib or 0.0)
                self._uuids.setdefault(slot, set()).add(gpu.uuid)
        for slot in list(utilization)[:_MAX_SLOTS]:
            busy = [min(share, 100.0) for share in utilization[slot].values()]
            self._utilization.setdefault(slot, []).append(round(sum(busy) / len(busy), 1))
            self._memory.setdefault(slot, []).append(round(memory[slot], 1))
        for uuid, code in sample.xids:
            log.error("Xid", uuid=uuid, code=code)
        self._xids = [*self._xids, *sample.xids][-emf.MAX_VALUES :]
        self._lost = max(self._lost, sample.lost)

    def send(self) -> None:
        """Send the collected samples as EMF lines and reset them."""
        metrics: list[emf.Metric] = []
        if self.gpus is not None:
            metrics += [
                emf.Metric(names.METRIC_GPUS_LOST, "Count", (float(self._lost),)),
                emf.Metric(names.METRIC_XID_ERRORS, "Count", (float(len(self._xids)),)),
                emf.Metric(names.METRIC_ECC_ERRORS, "Count", (float(self._ecc_new),)),
            ]
            for metric, by_gpu in self._readings.items():
                means = tuple(round(sum(values) / len(values), 1) for values in by_gpu.values())
                metrics.append(emf.Metric(metric, _UNITS.get(metric, "None"), means))
        for metric, values in self._values.items():
            if values:
                metrics.append(emf.Metric(metric, _UNITS[metric], tuple(round(value, 1) for value in values)))
        # With one GPU they are the GPU's own; of other processes than workers' there is no series.
        fields = {s for s in self._utilization if len(self._ecc) <= 1 or s == UNKNOWN_SLOT}
        workers = {
            slot: [round(sum(shares) / len(shares), 1), max(self._memory[slot])]
            for slot, shares in self._utilization.items()
            if slot in fields
        }
        if metrics:
            self._put({}, metrics, {"uuids": sorted(self._ecc), "xids": self._xids, "workers": workers})
        for slot in sorted(self._utilization.keys() - fields):
            metrics = [
                emf.Metric("WorkerGpuUtilization", "Percent", tuple(self._utilization[slot])),
                emf.Metric("WorkerGpuMemory", "Megabytes", tuple(self._memory[slot])),
            ]
            self._put({"slot": slot}, metrics, {"uuids": sorted(self._uuids[slot])})
        self._utilization, self._memory, self._uuids, self._readings = {}, {}, {}, {}
        self._xids, self._ecc_new, self._lost, self._values = [], 0, 0, {}
        self._sending.take()

    def _put(self, more: dict[str, str], metrics: list[emf.Metric], properties: dict[str, object]) -> None:
        self.sink.put(
            emf.line(
                self.clock.wall(),
                self.config.metrics.log_group,
                self.instance,
                {"stack": self.config.stack, "group": self.config.group, **more},
                metrics,
                {"instance": self.instance, **properties},
            )
        )


def _optional(value: float | None) -> tuple[float, ...]:
    return () if value is None else (value,)


def free_percent(host: Host, mount_point: Path) -> float | None:
    """Return the space available to unprivileged users at ``mount_point``, in percent.

    None if nothing is mounted there: the value would be the root volume's.
    """
    if host.mounted(mount_point) is None:
        return None
    try:
        status = os.statvfs(mount_point)
    except OSError:
        return None
    return 100.0 * status.f_bavail / status.f_blocks if status.f_blocks else None
