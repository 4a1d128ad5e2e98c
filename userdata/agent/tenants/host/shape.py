"""What this host has to deal out, as the kernel and NVML show it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from userdata.agent.machine.errors import AgentError
from userdata.agent.tenants import mig
from userdata.agent.tenants.host.docker import cpus
from userdata.agent.tenants.model import HostShape, MigProfile, NumaNode

_SYS: Final = Path("/sys")
_MEMINFO: Final = Path("/proc/meminfo")


def look(nvml: Any | None, sys: Path = _SYS, meminfo: Path = _MEMINFO) -> HostShape:
    """Return the host's shape; ``nvml`` is the module ``pynvml``, or None where no GPU is NVIDIA's.

    Raises:
        AgentError: the kernel's files cannot be read, or the driver does not answer.
    """
    try:
        gpus, places, profiles = _gpus(nvml, sys) if nvml else ((), {}, ())
        nodes = tuple(_nodes(sys, places))
        memory = next(line for line in meminfo.read_text().splitlines() if line.startswith("MemTotal:"))
        return HostShape(nodes, int(memory.split()[1]) // 2**20, gpus, profiles)
    except (OSError, ValueError, StopIteration) as error:
        raise AgentError(f"this host's shape cannot be read: {error}") from None


def _nodes(sys: Path, places: dict[int, int]) -> Iterator[NumaNode]:
    folder = sys / "devices/system/cpu"
    online = cpus((folder / "online").read_text())
    found: dict[int, dict[tuple[int, ...], None]] = {}
    for cpu in online:
        threads = (folder / f"cpu{cpu}/topology/thread_siblings_list").read_text()
        core = tuple(one for one in cpus(threads) if one in online)
        # A kernel without NUMA shows no node: all is one.
        near = [path.name.removeprefix("node") for path in (folder / f"cpu{cpu}").glob("node[0-9]*")]
        found.setdefault(int(near[0]) if near else 0, {})[core] = None
    for number, cores in sorted(found.items()):
        yield NumaNode(tuple(cores), tuple(sorted(gpu for gpu, node in places.items() if node == number)))


def _gpus(nvml: Any, sys: Path) -> tuple[tuple[int, ...], dict[int, int], tuple[MigProfile, ...]]:
    """Return the GPUs' ids, their NUMA nodes (by their place on the bus), and how they can be cut."""
    try:
        nvml.nvmlInit()
        handles = [nvml.nvmlDeviceGetHandleByIndex(n) for n in range(nvml.nvmlDeviceGetCount())]
        places = {
            number: _node(sys, _text(nvml.nvmlDeviceGetPciInfo(one).busId))
            for number, one in enumerate(handles)
        }
        profiles: tuple[MigProfile, ...] = ()
        if handles:
            total = nvml.nvmlDeviceGetMemoryInfo(handles[0]).total // 2**30
            profiles = mig.profiles(_text(nvml.nvmlDeviceGetName(handles[0])), total)
    except nvml.NVMLError as error:
        raise AgentError(f"this host's GPUs cannot be read: {error}") from None
    return tuple(range(len(handles))), places, profiles


def _node(sys: Path, bus: str) -> int:
    """Return a device's NUMA node; NVML writes the domain with eight digits, the kernel with four."""
    domain, _, rest = bus.lower().partition(":")
    try:
        return max(int((sys / "bus/pci/devices" / f"{domain[-4:]}:{rest}" / "numa_node").read_text()), 0)
    except (OSError, ValueError):
        return 0


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
