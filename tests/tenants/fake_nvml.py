"""The part of pynvml that a shared host uses, with two MIG-capable GPUs."""

# ruff: noqa: N801, N802, N818 - the names are pynvml's

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

GIB = 2**30


class FakeNvml:
    """A module with two GPUs, one on each node."""

    class NVMLError(Exception):
        """See pynvml."""

    class NVMLError_NotFound(NVMLError):
        """See pynvml."""

    def __init__(self) -> None:
        self.parts: dict[tuple[int, int], int] = {}
        """Memory slices of each MIG instance, by GPU and first slice."""

    def nvmlInit(self) -> None:
        """See pynvml."""

    def nvmlDeviceGetCount(self) -> int:
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetPciInfo(self, gpu: int) -> Any:
        return SimpleNamespace(busId=f"00000000:{gpu + 1}0:1C.0".encode())

    def nvmlDeviceGetMemoryInfo(self, gpu: int) -> Any:
        return SimpleNamespace(total=40 * GIB)

    def nvmlDeviceGetName(self, gpu: int) -> str:
        return "NVIDIA A100-SXM4-40GB"

    def nvmlDeviceGetMaxMigDeviceCount(self, gpu: int) -> int:
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, gpu: int, number: int) -> tuple[int, int]:
        mine = sorted(start for one, start in self.parts if one == gpu)
        if number >= len(mine):
            raise self.NVMLError_NotFound
        return gpu, mine[number]

    def nvmlDeviceGetGpuInstanceId(self, part: tuple[int, int]) -> int:
        return part[1] + 100

    def nvmlDeviceGetGpuInstanceById(self, gpu: int, number: int) -> tuple[int, int]:
        return gpu, number - 100

    def nvmlGpuInstanceGetInfo(self, part: tuple[int, int]) -> Any:
        return SimpleNamespace(placement=SimpleNamespace(start=part[1], size=self.parts[part]))

    def nvmlDeviceGetUUID(self, part: int | tuple[int, int]) -> str:
        return f"GPU-{part}" if isinstance(part, int) else f"MIG-{part[0]}-{part[1]}"
