"""The host's resources, read from the kernel and NVML."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from userdata.agent.machine.errors import AgentError
from userdata.agent.tenants import mig
from userdata.agent.tenants.host.docker import cpus
from userdata.agent.tenants.model import HostShape, MigProfile, NumaNode

_SYS: Final = Path("/sys")
_DEV: Final = Path("/dev")
_MEMINFO: Final = Path("/proc/meminfo")


def read_shape(nvml: Any | None, sys: Path = _SYS, meminfo: Path = _MEMINFO) -> HostShape:
    """Return the host's shape; ``nvml`` is the module ``pynvml``, or None without NVIDIA GPUs.

    Raises:
        AgentError: the kernel's files cannot be read, or the driver does not respond.
    """
    try:
        gpus, nodes_by_gpu, profiles = _gpus(nvml, sys) if nvml else ((), {}, ())
        nodes = tuple(_nodes(sys, nodes_by_gpu))
        memory = next(line for line in meminfo.read_text().splitlines() if line.startswith("MemTotal:"))
        return HostShape(nodes, int(memory.split()[1]) // 2**20, gpus, profiles)
    except (OSError, ValueError, StopIteration) as error:
        raise AgentError(f"cannot read the host's CPUs and memory: {error}") from None


def disk_of(path: Path, sys: Path = _SYS, dev: Path = _DEV) -> str:
    """Return the device of the disk with ``path``, empty if there is none; bounds apply to whole disks.

    Source: kernel manual, "Control Group v2", ``io.max``.
    """
    try:
        number = path.stat().st_dev
        block = (sys / "dev/block" / f"{os.major(number)}:{os.minor(number)}").resolve(strict=True)
    except OSError:
        return ""
    disk = block.parent if (block / "partition").exists() else block
    return f"/dev/{disk.name}" if (dev / disk.name).exists() else ""


def _nodes(sys: Path, nodes_by_gpu: dict[int, int]) -> Iterator[NumaNode]:
    directory = sys / "devices/system/cpu"
    online = cpus((directory / "online").read_text())
    cores_by_node: dict[int, dict[tuple[int, ...], None]] = {}
    for cpu in online:
        threads = (directory / f"cpu{cpu}/topology/thread_siblings_list").read_text()
        core = tuple(sibling for sibling in cpus(threads) if sibling in online)
        # A kernel without NUMA has no nodes: all CPUs count as node 0.
        near = [path.name.removeprefix("node") for path in (directory / f"cpu{cpu}").glob("node[0-9]*")]
        cores_by_node.setdefault(int(near[0]) if near else 0, {})[core] = None
    for number, cores in sorted(cores_by_node.items()):
        yield NumaNode(
            tuple(cores), tuple(sorted(gpu for gpu, node in nodes_by_gpu.items() if node == number))
        )


def _gpus(nvml: Any, sys: Path) -> tuple[tuple[int, ...], dict[int, int], tuple[MigProfile, ...]]:
    """Return the GPU ids, their NUMA nodes (by PCI address) and their MIG profiles."""
    try:
        nvml.nvmlInit()
        handles = [nvml.nvmlDeviceGetHandleByIndex(n) for n in range(nvml.nvmlDeviceGetCount())]
        nodes_by_gpu = {
            number: _node(sys, _text(nvml.nvmlDeviceGetPciInfo(handle).busId))
            for number, handle in enumerate(handles)
        }
        profiles: tuple[MigProfile, ...] = ()
        if handles:
            total = nvml.nvmlDeviceGetMemoryInfo(handles[0]).total // 2**30
            profiles = mig.profiles(_text(nvml.nvmlDeviceGetName(handles[0])), total)
    except nvml.NVMLError as error:
        raise AgentError(f"cannot read the host's GPUs: {error}") from None
    return tuple(range(len(handles))), nodes_by_gpu, profiles


def _node(sys: Path, bus: str) -> int:
    """Return a device's NUMA node. PCI domains have eight digits in NVML, four in the kernel."""
    domain, _, rest = bus.lower().partition(":")
    try:
        return max(int((sys / "bus/pci/devices" / f"{domain[-4:]}:{rest}" / "numa_node").read_text()), 0)
    except (OSError, ValueError):
        return 0


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
