"""Instance types that may be shared hosts: what of each there is to divide.

CPUs and memory are those of ``instance_sizes.py``. NUMA nodes, and GPUs by node, are those of the sockets
that the instance type guide names; they only say which plan a preview shows. What fits
does not depend on them, and the host plans with what it finds.
"""

from __future__ import annotations

from typing import Final

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
"""NUMA nodes."""

_THREADS: Final = 2
"""Of a core: all these types have two."""

_SHOWN: Final = 0.96
"""Of its memory a machine's firmware and kernel take up to so much (4 %) before ``MemTotal`` is counted."""

TYPES: Final = tuple(_NODES)


def shape(name: str) -> HostShape:
    """Return what a preview takes for granted of a type.

    Raises ``ValueError``, with what is allowed, for a type that is no shared host.
    """
    if name not in _NODES:
        raise ValueError(f"{name!r} cannot be a shared host, allowed: {', '.join(TYPES)}")
    size, count, known = INSTANCE_SIZES[name], _NODES[name], catalogue.lookup(name)
    cores, gpus = size.vcpus // _THREADS, known.accelerators
    nodes = tuple(
        NumaNode(
            # As Linux numbers them: first the first thread of each core, then the second.
            tuple((core, core + cores) for core in range(cores) if core * count // cores == node),
            tuple(gpu for gpu in range(gpus) if gpu * count // gpus == node),
        )
        for node in range(count)
    )
    parts = mig.profiles(known.family.accelerator, known.family.memory_gib)
    return HostShape(nodes, int(size.memory_gib * _SHOWN), tuple(range(gpus)), parts)
