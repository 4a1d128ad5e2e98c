"""What a pod asks of its node: what the type has, less what the system holds back."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import floor
from typing import Final

from infra.catalogue import accelerators as catalogue
from infra.catalogue.instance_sizes import INSTANCE_SIZES, InstanceSize

_OVERHEAD: Final = 0.075
"""Of the memory, which the hypervisor may hold: Karpenter reckons so before it has seen a type
(``vmMemoryOverheadPercent``)."""
_EVICTION_MIB: Final = 100
"""The kubelet evicts below that (``memory.available``)."""
_DAEMONS_MILLICPU: Final = 500
_DAEMONS_MIB: Final = 1024
"""For a node's own pods: network, storage, device plugin, identity and metrics. A guess, generous."""
_MANY_PODS_FROM_VCPUS: Final = 30


@dataclass(frozen=True, slots=True)
class Requests:
    """What one pod asks for: thousandths of a processor, MiB, GPUs."""

    millicpu: int
    memory_mib: int
    gpus: int

    @property
    def resources(self) -> dict[str, dict[str, str]]:
        """As a container has them: memory and GPUs are bounded by what is asked for, processors are not."""
        bounded = {"memory": f"{self.memory_mib}Mi", "nvidia.com/gpu": str(self.gpus)}
        return {"requests": {"cpu": f"{self.millicpu}m", **bounded}, "limits": bounded}


def allocatable(size: InstanceSize) -> tuple[int, int]:
    """Return thousandths of a processor and MiB that are left for pods on a node of that size.

    The reserve is that of EKS's own images (amazon-eks-ami, ``kubeReserved``): 6 % of the first processor,
    1 % of the second, 0.5 % of the next two, 0.25 % of the others; 255 MiB, and 11 MiB for each pod that may
    run, 110 or 250 of them.
    """
    shares = [60, 10, 5, 5, *[2.5] * (size.vcpus - 4)][: size.vcpus]
    pods = 250 if size.vcpus >= _MANY_PODS_FROM_VCPUS else 110
    memory = floor(size.memory_gib * 1024 * (1 - _OVERHEAD)) - 255 - 11 * pods - _EVICTION_MIB - _DAEMONS_MIB
    return floor(size.vcpus * 1000 - sum(shares)) - _DAEMONS_MILLICPU, memory


def of_job(types: Iterable[str]) -> Requests:
    """Return what a pod asks for that has a whole node, on any of ``types``: as a job has its instance."""
    chosen = list(types)
    left = [allocatable(INSTANCE_SIZES[kind]) for kind in chosen]
    gpus = min(catalogue.lookup(kind).accelerators for kind in chosen)
    return Requests(min(cpu for cpu, _ in left), min(memory for _, memory in left), gpus)


def of_worker(types: Iterable[str]) -> Requests:
    """Return what a worker with one GPU asks for: its share of a node."""
    whole = of_job(types)
    return Requests(whole.millicpu // whole.gpus, whole.memory_mib // whole.gpus, 1)
