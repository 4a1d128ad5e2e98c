"""What NVML says about the GPUs, in one look.

A GPU that falls off the bus is a number in it, not an exception.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from userdata.agent.machine import log

_NVIDIA: Final = "0x10de"
_DISPLAY_CLASSES: Final = ("0x0300", "0x0302")  # VGA and 3D controllers
LOST_AFTER: Final = 3
"""Looks in a row in which a GPU answers with an error before it counts as lost."""


@dataclass(frozen=True)
class GpuProcess:
    """A compute process on a GPU."""

    pid: int
    memory_mib: float | None
    """None where the driver does not tell (containers without the host's process ids, MIG)."""
    utilization: float
    """Share of the time in percent in which one of its kernels ran, since the last look."""


@dataclass(frozen=True)
class Gpu:
    """One GPU that answered."""

    uuid: str
    processes: tuple[GpuProcess, ...]
    ecc_uncorrected: int | None
    """Uncorrected errors since the driver was loaded; None when not known in this look."""
    index: int = 0
    """Its number in PCI order, by which processes and containers are given it."""
    busy: float | None = None
    """Share of the time in percent in which any kernel ran, lately; None where the driver does not say."""


@dataclass(frozen=True)
class Look:
    """All GPUs at one moment. ``xids`` are (uuid, code) pairs that came up since the last look."""

    gpus: tuple[Gpu, ...] = ()
    lost: int = 0
    xids: tuple[tuple[str, int], ...] = ()


@dataclass
class _Device:
    index: int
    handle: Any
    uuid: str
    seen: int = 0
    """Time stamp (µs) of the newest utilisation sample that was counted."""
    lost: bool = False
    failures: int = 0
    """Looks in a row that ended in an error other than "lost"."""


@dataclass
class Gpus:
    """All GPUs through ``nvml`` (the module ``pynvml``, or a double).

    ``expected`` is how many the machine has.
    """

    nvml: Any
    expected: int = 0
    _devices: list[_Device] = field(default_factory=list)
    _events: Any = None
    _ready: bool = False

    def look(self) -> Look:
        """Return what is seen now. Never raises for an NVML error: what does not answer counts as lost."""
        if not self._ready and not self._open():
            return Look(lost=max(self.expected, 1))
        gpus = tuple(g for d in self._devices if not d.lost and (g := self._gpu(d)) is not None)
        xids = tuple(self._xids())
        return Look(gpus, max(self.expected, len(self._devices)) - len(gpus), xids)

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
                    log.error("GPU does not answer", index=index, error=str(error))
                    self.expected = max(self.expected, index + 1)
        except nvml.NVMLError as error:
            log.error("NVML does not answer", error=str(error))
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
            log.warning("Xid events are not available", error=str(error))
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
                device.uuid, tuple(processes.values()), self._ecc(device), device.index, self._busy(device)
            )
        except nvml.NVMLError_GpuIsLost as error:
            device.lost = True  # not asked again: calls to a lost GPU can take seconds
            log.error("GPU lost", uuid=device.uuid, error=str(error))
            return None
        except nvml.NVMLError as error:
            device.failures += 1
            log.warning("GPU does not answer", uuid=device.uuid, error=str(error), failures=device.failures)
            return None if device.failures >= LOST_AFTER else Gpu(device.uuid, (), None, device.index)
        device.failures = 0
        return gpu

    def _utilization(self, device: _Device) -> dict[int, float]:
        """Average each process's samples since the last look; the driver keeps a few seconds of them."""
        nvml = self.nvml
        try:
            samples = nvml.nvmlDeviceGetProcessUtilization(device.handle, device.seen)
        except (nvml.NVMLError_NotFound, nvml.NVMLError_NotSupported):
            return {}  # no process ran anything; or MIG
        values: dict[int, list[int]] = {}
        for sample in samples:
            if sample.timeStamp > device.seen:
                values.setdefault(sample.pid, []).append(sample.smUtil)
        device.seen = max([device.seen, *(s.timeStamp for s in samples)])
        return {pid: sum(v) / len(v) for pid, v in values.items()}

    def _busy(self, device: _Device) -> float | None:
        """Return NVML's own figure, over its last sample period (a sixth of a second to one second)."""
        nvml = self.nvml
        try:
            return float(nvml.nvmlDeviceGetUtilizationRates(device.handle).gpu)
        except nvml.NVMLError_NotSupported:  # with MIG on, for one
            return None

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
        # Bounded: a GPU that storms with errors must not keep us here.
        for _ in range(32 if self._events is not None else 0):
            try:
                event = nvml.nvmlEventSetWait_v2(self._events, 0)
                yield _text(nvml.nvmlDeviceGetUUID(event.device)), int(event.eventData)
            except nvml.NVMLError_Timeout:
                return
            except nvml.NVMLError as error:
                log.warning("Xid events cannot be read", error=str(error))
                return


def count_on_bus(devices: Path = Path("/sys/bus/pci/devices")) -> int:
    """Count NVIDIA's GPUs on the PCI bus, whether or not the driver has them."""
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
