"""Instance types of shared hosts, with their CPUs, memory, GPUs and NUMA nodes.

CPUs and memory are those of ``instance_sizes.py``. NUMA nodes, and GPUs by node, follow from the sockets that
the instance type guide lists. They determine only the plan that a preview shows: whether tenants fit does not
depend on them, and the host plans with its actual topology.
"""

from __future__ import annotations

from typing import Final

from contracts.sentences import alternatives
from infra.catalogue import accelerators as catalogue
from infra.catalogue.instance_sizes import INSTANCE_SIZES
from userdata.agent.tenants import mig
from userdata.agent.tenants.model import HostShape, NumaNode

_NODES: Final[dict[str, int]] = {
    "p3dn.24xlarge": 2,
    "p4d.24xlarge": 2,
    "p4de.24xlarge": 2,
    "p5.4xlarge": 1,
    "p5.48xlarge": 2,
    "p5e.48xlarge": 2,
    "p5en.48xlarge": 2,
    "p6-b200.48xlarge": 2,
    "p6-b300.48xlarge": 2,
    "g4dn.12xlarge": 1,
    "g4dn.metal": 2,
    "g5.12xlarge": 1,
    "g5.24xlarge": 1,
    "g5.48xlarge": 2,
    "g6.12xlarge": 1,
    "g6.24xlarge": 1,
    "g6.48xlarge": 2,
    "g6e.12xlarge": 1,
    "g6e.24xlarge": 1,
    "g6e.48xlarge": 2,
    "g7e.12xlarge": 1,
    "g7e.24xlarge": 1,
    "g7e.48xlarge": 2,
}
"""Number of NUMA nodes."""

_THREADS: Final = 2
"""Threads per core of all these types."""

_VISIBLE_MEMORY: Final = 0.96
"""Part of the memory that ``MemTotal`` shows: firmware and kernel take up to 4 %."""

TYPES: Final = tuple(_NODES)


def shape(name: str) -> HostShape:
    """Return the resources of a type as a preview assumes them.

    Raises:
        ValueError: the type cannot be a shared host.
    """
    if name not in _NODES:
        raise ValueError(f"{name!r} is not supported as a shared host; use {alternatives(TYPES)}")
    size, count, instance_type = INSTANCE_SIZES[name], _NODES[name], catalogue.lookup(name)
    cores, gpus = size.vcpus // _THREADS, instance_type.accelerators
    nodes = tuple(
        NumaNode(
            # Linux numbers the first thread of each core, then the second.
            tuple((core, core + cores) for core in range(cores) if core * count // cores == node),
            tuple(gpu for gpu in range(gpus) if gpu * count // gpus == node),
        )
        for node in range(count)
    )
    profiles = mig.profiles(instance_type.family.accelerator, instance_type.family.memory_gib)
    return HostShape(nodes, int(size.memory_gib * _VISIBLE_MEMORY), tuple(range(gpus)), profiles)
