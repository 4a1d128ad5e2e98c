"""Samples of all GPUs through NVML; a GPU that falls off the bus is counted as lost, not raised."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from contracts import names
from userdata.agent.machine import log

_NVIDIA: Final = "0x10de"
_DISPLAY_CLASSES: Final = ("0x0300", "0x0302")  # VGA and 3D controllers
OPEN_SECONDS: Final = 8.0
"""Time in which a new process must have opened NVML."""
_MAX_ERROR: Final = 200
LOST_AFTER: Final = 3
"""Consecutive samples with an NVML error after which a GPU counts as lost."""


@dataclass(frozen=True)
class GpuProcess:
    """A compute process on a GPU."""

    pid: int
    memory_mib: float | None
    """None if the driver does not report it (containers without the host's process ids, MIG)."""
    utilization: float
    """Percent of the time since the last sample in which one of its kernels ran."""


@dataclass(frozen=True)
class Gpu:
    """One GPU that responded."""

    uuid: str
    processes: tuple[GpuProcess, ...]
    ecc_uncorrected: int | None
    """Uncorrected errors since the driver was loaded; None if unknown in this sample."""
    index: int = 0
    """Its index in PCI order, by which it is assigned to processes and containers."""
    readings: Mapping[str, float] = field(default_factory=dict)
    """By metric; without what the driver does not report."""

    @property
    def busy(self) -> float | None:
        """Percent of the recent time in which any kernel ran; None if the driver does not report it."""
        return self.readings.get(names.METRIC_GPU_UTILIZATION)


@dataclass(frozen=True)
class GpuSample:
    """A sample of all GPUs. ``xids`` are (uuid, code) pairs since the last sample."""

    gpus: tuple[Gpu, ...] = ()
    lost: int = 0
    xids: tuple[tuple[str, int], ...] = ()


@dataclass
class _Device:
    index: int
    handle: Any
    uuid: str
    last_sample_at: int = 0
    """Time stamp (µs) of the newest utilisation sample that was counted."""
    lost: bool = False
    failures: int = 0
    """Consecutive samples that ended in an error other than "lost"."""


@dataclass
class Gpus:
    """All GPUs through ``nvml`` (the module ``pynvml``, or a double).

    ``expected``: the number of GPUs of the machine.
    """

    nvml: Any
    expected: int = 0
    _devices: list[_Device] = field(default_factory=list)
    _events: Any = None
    _ready: bool = False

    def sample(self) -> GpuSample:
        """Return a sample. Does not raise for an NVML error: a GPU that does not respond counts as lost."""
        if not self._ready and not self._open():
            return GpuSample(lost=max(self.expected, 1))
        gpus = tuple(g for d in self._devices if not d.lost and (g := self._gpu(d)) is not None)
        xids = tuple(self._xids())
        return GpuSample(gpus, max(self.expected, len(self._devices)) - len(gpus), xids)

    def opens_again(self) -> bool:
        """Return whether NVML can be opened now; an open handle outlives an upgrade of the driver.

        A new process loads the current library, as each new process of the job does. A double is opened here.
        """
        nvml = self.nvml
        if getattr(nvml, "__name__", "") == "pynvml":
            code = "import pynvml; pynvml.nvmlInit()"
            paths = os.pathsep.join(path for path in sys.path if path)
            done = subprocess.run(  # noqa: S603
                [sys.executable, "-c", code],
                env={**os.environ, "PYTHONPATH": paths},
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                timeout=OPEN_SECONDS,
                check=False,
            )
            if done.returncode:
                log.error("NVML cannot be opened again", error=done.stderr[-_MAX_ERROR:].strip())
            return done.returncode == 0
        try:
            nvml.nvmlInit()
        except nvml.NVMLError as error:
            log.error("NVML cannot be opened again", error=str(error))
            return False
        return True

    def _open(self) -> bool:
        nvml = self.nvml
        try:
            nvml.nvmlInit()
            self._devices = []
            for index in range(nvml.nvmlDeviceGetCount()):
                try:
                    handle = nvml.nvmlDeviceGetHandleByIndex(index)
                    self._devices.append(_Device(index, handle, _text(nvml.nvmlDeviceGetUUID(handle))))
                except nvml.NVMLError as error:
                    log.error("GPU does not respond", index=index, error=str(error))
                    self.expected = max(self.expected, index + 1)
        except nvml.NVMLError as error:
            log.error("NVML does not respond", error=str(error))
            return False
        self._listen()
        self._ready = True
        log.info("GPUs found", uuids=[d.uuid for d in self._devices], expected=self.expected)
        return True

    def _listen(self) -> None:
        nvml = self.nvml
        try:
            self._events = nvml.nvmlEventSetCreate()
            for device in self._devices:
                nvml.nvmlDeviceRegisterEvents(device.handle, nvml.nvmlEventTypeXidCriticalError, self._events)
        except nvml.NVMLError as error:
            log.warning("Xid events not available", error=str(error))
            self._events = None

    def _gpu(self, device: _Device) -> Gpu | None:
        nvml = self.nvml
        try:
            utilization = self._utilization(device)
            processes = {}
            for entry in nvml.nvmlDeviceGetComputeRunningProcesses(device.handle):
                used = entry.usedGpuMemory
                mib = None if used is None else used / 2**20
                processes[entry.pid] = GpuProcess(entry.pid, mib, utilization.get(entry.pid, 0.0))
            gpu = Gpu(
                device.uuid,
                tuple(processes.values()),
                self._ecc(device),
                device.index,
                self._readings(device),
            )
        except nvml.NVMLError_GpuIsLost as error:
            device.lost = True  # not queried again: calls to a lost GPU can take seconds
            log.error("GPU lost", uuid=device.uuid, error=str(error))
            return None
        except nvml.NVMLError as error:
            device.failures += 1
            log.warning("GPU does not respond", uuid=device.uuid, error=str(error), failures=device.failures)
            return None if device.failures >= LOST_AFTER else Gpu(device.uuid, (), None, device.index)
        device.failures = 0
        return gpu

    def _utilization(self, device: _Device) -> dict[int, float]:
        """Return each process's mean utilisation since the last sample; the driver keeps a few seconds."""
        nvml = self.nvml
        try:
            samples = nvml.nvmlDeviceGetProcessUtilization(device.handle, device.last_sample_at)
        except (nvml.NVMLError_NotFound, nvml.NVMLError_NotSupported):
            return {}  # no process ran anything; or MIG
        values: dict[int, list[int]] = {}
        for sample in samples:
            if sample.timeStamp > device.last_sample_at:
                values.setdefault(sample.pid, []).append(sample.smUtil)
        device.last_sample_at = max([device.last_sample_at, *(s.timeStamp for s in samples)])
        return {pid: sum(v) / len(v) for pid, v in values.items()}

    def _readings(self, device: _Device) -> dict[str, float]:
        """Return what NVML reports now; utilization is that of a sixth of a second to one second."""
        nvml, handle = self.nvml, device.handle
        queries: dict[str, Callable[[], float]] = {
            names.METRIC_GPU_UTILIZATION: lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu,
            names.METRIC_GPU_MEMORY_UTILIZATION: lambda: nvml.nvmlDeviceGetUtilizationRates(handle).memory,
            names.METRIC_GPU_MEMORY_USED: lambda: nvml.nvmlDeviceGetMemoryInfo(handle).used / 2**20,
            names.METRIC_GPU_TEMPERATURE: lambda: nvml.nvmlDeviceGetTemperature(
                handle, nvml.NVML_TEMPERATURE_GPU
            ),
            names.METRIC_GPU_POWER: lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1000,
        }
        readings: dict[str, float] = {}
        for metric, query in queries.items():
            # Such as utilization with MIG enabled; or a driver without this function: the GPU is well.
            with suppress(nvml.NVMLError_NotSupported, nvml.NVMLError_FunctionNotFound):
                readings[metric] = float(query())
        return readings

    def _ecc(self, device: _Device) -> int:
        nvml = self.nvml
        try:
            return int(
                nvml.nvmlDeviceGetTotalEccErrors(
                    device.handle, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
                )
            )
        except nvml.NVMLError_NotSupported:
            return 0

    def _xids(self) -> Iterable[tuple[str, int]]:
        nvml = self.nvml
        # Bounded: a GPU may raise errors without end.
        for _ in range(32 if self._events is not None else 0):
            try:
                event = nvml.nvmlEventSetWait_v2(self._events, 0)
                yield _text(nvml.nvmlDeviceGetUUID(event.device)), int(event.eventData)
            except nvml.NVMLError_Timeout:
                return
            except nvml.NVMLError as error:
                log.warning("Xid events not read", error=str(error))
                return


def count_on_bus(devices: Path = Path("/sys/bus/pci/devices")) -> int:
    """Return the number of NVIDIA GPUs on the PCI bus, with or without a driver."""
    count = 0
    for device in devices.glob("*"):
        try:
            vendor = (device / "vendor").read_text().strip()
            kind = (device / "class").read_text().strip()[:6]
        except OSError:
            continue
        count += vendor == _NVIDIA and kind in _DISPLAY_CLASSES
    return count


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
