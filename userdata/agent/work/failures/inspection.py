"""Checks of the host: the GPUs at intervals while the job runs, everything after a failed run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from userdata.agent.machine.background import BackgroundPoller, BackgroundRunner, at_once
from userdata.agent.machine.clock import Clock
from userdata.agent.machine.disks import check_writable
from userdata.agent.machine.errors import AgentError, LeaseLostError
from userdata.agent.metrics.gpus import LOST_AFTER, Gpus
from userdata.agent.work.failures.faults import DiskFacts, HostDiagnosis

MAX_PROBES: Final = 3
"""Failed probes in a row after which a service counts as unreachable."""
PROBE_INTERVAL_SECONDS: Final = 10.0
GPU_SECONDS: Final = 10.0
"""Time without an answer of the driver after which its GPUs count as missing in a diagnosis."""


@dataclass(frozen=True)
class GpuStatus:
    """Result of a GPU check: whether any GPU is busy, and how many do not respond."""

    is_busy: bool = False
    missing: int = 0


@dataclass(eq=False)
class Inspector:
    """Checks one host.

    Args:
        gpus: None if NVML does not support them.
        disks: the host's root file system, and that of the job's files (its volume or EFS).
        probes: by name of a service, a function that returns whether it responds.
        is_terminating: whether the instance has a termination notice.
        on_poll: called between slow steps, to renew the lease.
        run_in_background: samples the GPUs, as a driver may hang.
    """

    gpus: Gpus | None
    disks: tuple[Path, Path | None]
    probes: Mapping[str, Callable[[], bool]]
    is_terminating: Callable[[], bool]
    clock: Clock
    on_poll: Callable[[], None] = lambda: None
    run_in_background: BackgroundRunner = at_once

    def __post_init__(self) -> None:
        self._xids: list[int] = []
        self._ecc: dict[str, int] = {}
        self._ecc_new = 0

        self._sampling = BackgroundPoller(
            "GPUs", self._sample, self.run_in_background, self.clock, GPU_SECONDS
        )
        self._opening = BackgroundPoller(
            "the driver", self._open_again, self.run_in_background, self.clock, GPU_SECONDS
        )

    def check_gpus(self) -> GpuStatus | None:
        """Check the GPUs; None without an answer, which is not a loss. Errors are kept for `diagnose`."""
        return self._sampling.take()

    def diagnose(self) -> HostDiagnosis:
        """Check everything; takes a minute or two if something is faulty. Raises what ``on_poll`` raises."""
        if self.is_terminating():
            return HostDiagnosis(is_terminating=True)
        gpu_status = GpuStatus()
        for _ in range(LOST_AFTER):  # a single error is not a loss
            try:
                gpu_status = self._sampling.wait(self.on_poll)
                if not gpu_status.missing:  # by the open handle
                    gpu_status = self._opening.wait(self.on_poll)
            except LeaseLostError:
                raise
            except AgentError:
                gpu_status = GpuStatus(missing=max(self.gpus.expected, 1) if self.gpus else 0)
            if not gpu_status.missing:
                break
            self.clock.sleep(1.0)
        root, data = self.disks
        self.on_poll()
        diagnosis = HostDiagnosis(
            gpus_expected=self.gpus.expected if self.gpus else 0,
            gpus_missing=gpu_status.missing,
            xids=tuple(self._xids),
            ecc_errors=self._ecc_new,
            root=DiskFacts(*check_writable(root)),
            data=DiskFacts(*check_writable(data)) if data else DiskFacts(),
            unreachable=tuple(self._find_unreachable()),
            is_terminating=self.is_terminating(),  # a notice may have arrived meanwhile
        )
        self._xids, self._ecc_new = [], 0
        return diagnosis

    def _open_again(self) -> GpuStatus:
        is_open = self.gpus is None or self.gpus.opens_again()
        return GpuStatus(missing=0 if is_open or self.gpus is None else max(self.gpus.expected, 1))

    def _sample(self) -> GpuStatus:
        if self.gpus is None:
            return GpuStatus()
        sample = self.gpus.sample()
        for gpu in sample.gpus:
            if gpu.ecc_uncorrected is not None:
                before = self._ecc.get(gpu.uuid, gpu.ecc_uncorrected)
                self._ecc_new += max(gpu.ecc_uncorrected - before, 0)
                self._ecc[gpu.uuid] = gpu.ecc_uncorrected
        self._xids = sorted({*self._xids, *(code for _, code in sample.xids)})
        busy = any(process.utilization > 0 for gpu in sample.gpus for process in gpu.processes)
        return GpuStatus(busy, sample.lost)

    def _find_unreachable(self) -> list[str]:
        unreachable = list(self.probes)
        for attempt in range(MAX_PROBES):
            if attempt:
                self.clock.sleep(PROBE_INTERVAL_SECONDS)
                self.on_poll()
            unreachable = [name for name in unreachable if not self.probes[name]()]
            if not unreachable:
                break
        return unreachable
