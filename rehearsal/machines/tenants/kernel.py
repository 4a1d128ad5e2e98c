"""What a kernel and a driver show of a simulated machine: files below ``root``, and as much of NVML."""

# ruff: noqa: N802 - the names are pynvml's

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

from userdata.agent.tenants.model import HostShape

_CPUS: Final = "sys/devices/system/cpu"
_NODES: Final = "sys/devices/system/node"
_CGROUPS: Final = "sys/fs/cgroup"


def show(root: Path, shape: HostShape) -> None:
    """Write the files from which the agent learns ``shape``; its GPUs' places are those of ``Driver``."""
    for number, node in enumerate(shape.nodes):
        for core in node.cores:
            threads = ",".join(map(str, core))
            for cpu in core:
                _write(root / _CPUS / f"cpu{cpu}" / "topology" / "thread_siblings_list", threads)
        listed = ",".join(str(cpu) for core in node.cores for cpu in core)
        _write(root / _NODES / f"node{number}" / "cpulist", listed)
        for gpu in node.gpus:
            _write(root / "sys/bus/pci/devices" / f"0000:{gpu + 1:02x}:00.0" / "numa_node", str(number))
    _write(root / _CPUS / "online", f"0-{shape.cpus - 1}")
    _write(root / "proc/meminfo", f"MemTotal: {shape.memory_gib * 2**20} kB")
    _write(root / _CGROUPS / "cgroup.controllers", "cpu memory")


class Groups:
    """The control groups of containers, as files below ``root``; written where something has changed."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._shown: dict[Path, str] = {}

    def show(self, pid: int, weight: int, seconds: float, memory: int) -> None:
        """Say of the group of ``pid``: its weight, the CPU seconds it used, bytes of memory."""
        path = f"gpu-spot/{pid}"
        place = self._root / _CGROUPS / path
        self._put(self._root / "proc" / str(pid) / "cgroup", f"0::/{path}")
        self._put(place / "cpu.weight", str(weight))
        self._put(place / "cpu.stat", f"usage_usec {round(seconds * 1e6)}")
        self._put(place / "memory.current", str(memory))

    def _put(self, path: Path, text: str) -> None:
        before = self._shown.get(path)
        if before == text:
            return
        if before is None:
            _write(path, text)
        else:
            path.write_text(text + "\n")
        self._shown[path] = text


class Driver:
    """As much of the module ``pynvml`` as a shared host asks for whole GPUs."""

    class NVMLError(Exception):
        """See pynvml."""

    def __init__(self, shape: HostShape) -> None:
        self._shape = shape

    def nvmlInit(self) -> None:
        """See pynvml."""

    def nvmlDeviceGetCount(self) -> int:
        """See pynvml."""
        return len(self._shape.gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        """See pynvml: the handle is the number."""
        return index

    def nvmlDeviceGetPciInfo(self, gpu: int) -> Any:
        """See pynvml."""
        return SimpleNamespace(busId=f"00000000:{gpu + 1:02X}:00.0")

    def nvmlDeviceGetMemoryInfo(self, gpu: int) -> Any:
        """See pynvml: nobody asks how much it is of a GPU that is not cut."""
        return SimpleNamespace(total=0)

    def nvmlDeviceGetName(self, gpu: int) -> str:
        """See pynvml: of a GPU that cannot be cut, as parts are not played."""
        return "simulated"


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n")
