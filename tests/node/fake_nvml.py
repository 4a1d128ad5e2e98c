# ruff: noqa: N802, N803 - NVML's names
"""NVML without a driver: pynvml's own errors, constants and structures; only the answers are ours."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pynvml


@dataclass
class FakeGpu:
    uuid: str
    memory: dict[int, int | None] = field(default_factory=dict)
    samples: list[tuple[int, int, int]] = field(default_factory=list)
    """(pid, time stamp, utilisation in percent)"""
    ecc: int | None = 0
    busy: int | None = 0
    """Utilisation in percent; None: not supported."""
    error: int = 0
    """The NVML return code of every call to this GPU."""


@dataclass
class FakeNvml:
    gpus: list[FakeGpu]
    init_error: int = 0
    xids: list[tuple[FakeGpu, int]] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)

    def __getattr__(self, name: str) -> Any:
        if name.startswith(("NVML", "nvmlEventType")):
            return getattr(pynvml, name)
        raise AttributeError(name)

    def _check(self, code: int) -> None:
        if code:
            raise pynvml.NVMLError(code)

    def nvmlInit(self) -> None:
        self._check(self.init_error)

    def nvmlDeviceGetCount(self) -> int:
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> FakeGpu:
        self._check(self.gpus[index].error)
        return self.gpus[index]

    def nvmlDeviceGetUUID(self, handle: FakeGpu) -> str:
        return handle.uuid

    def nvmlDeviceGetComputeRunningProcesses(self, handle: FakeGpu) -> list[Any]:
        self.calls.append(handle.uuid)
        self._check(handle.error)
        return [SimpleNamespace(pid=pid, usedGpuMemory=used) for pid, used in handle.memory.items()]

    def nvmlDeviceGetProcessUtilization(self, handle: FakeGpu, timeStamp: int) -> list[Any]:
        self.calls.append(handle.uuid)
        self._check(handle.error)
        newer = [s for s in handle.samples if s[1] > timeStamp]
        if not newer:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        found = []
        for pid, stamp, used in newer:
            sample = pynvml.c_nvmlProcessUtilizationSample_t()
            sample.pid, sample.timeStamp, sample.smUtil = pid, stamp, used
            found.append(sample)
        return found

    def nvmlDeviceGetUtilizationRates(self, handle: FakeGpu) -> Any:
        self._check(handle.error)
        if handle.busy is None:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return SimpleNamespace(gpu=handle.busy, memory=handle.busy // 2)

    def nvmlDeviceGetMemoryInfo(self, handle: FakeGpu) -> Any:
        self._check(handle.error)
        return SimpleNamespace(used=2**30)

    def nvmlDeviceGetTemperature(self, handle: FakeGpu, sensor: int) -> int:
        self._check(handle.error)
        assert sensor == pynvml.NVML_TEMPERATURE_GPU
        return 60

    def nvmlDeviceGetPowerUsage(self, handle: FakeGpu) -> int:
        self._check(handle.error)
        return 250_000

    def nvmlDeviceGetTotalEccErrors(self, handle: FakeGpu, errorType: int, counterType: int) -> int:
        self._check(handle.error)
        if handle.ecc is None:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return handle.ecc

    def nvmlEventSetCreate(self) -> object:
        return object()

    def nvmlDeviceRegisterEvents(self, handle: FakeGpu, eventTypes: int, eventSet: object) -> None:
        self._check(handle.error)

    def nvmlEventSetWait_v2(self, eventSet: object, timeoutms: int) -> Any:
        if not self.xids:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_TIMEOUT)
        gpu, code = self.xids.pop(0)
        return SimpleNamespace(device=gpu, eventData=code)
