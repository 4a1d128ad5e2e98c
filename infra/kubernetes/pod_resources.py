"""Resource requests of pods: the instance type's capacity less the system reserves."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import floor
from typing import Any, Final

from infra.catalogue import accelerators as catalogue
from infra.catalogue.instance_sizes import INSTANCE_SIZES, InstanceSize
from userdata.agent.work.container import Container, shared_memory

_OVERHEAD: Final = 0.075
"""Share of memory that the hypervisor may use: Karpenter's default before it knows a type
(``vmMemoryOverheadPercent``)."""
_EVICTION_MIB: Final = 100
"""Available memory below which the kubelet evicts pods (``memory.available``)."""
_DAEMONS_MILLICPU: Final = 500
_DAEMONS_MIB: Final = 1024
"""Reserve for daemon sets (network, storage, device plugin, identity, metrics); a generous estimate."""
_MAX_PODS: Final = 110
_RESERVED_MIB: Final = 255 + 11 * _MAX_PODS
KUBELET: Final = {"maxPods": _MAX_PODS, "kubeReserved": {"memory": f"{_RESERVED_MIB}Mi"}}
"""Of the nodes. By default Karpenter and the node reserve memory for as many pods as the type has addresses,
up to 1,514; Karpenter does whatever ``maxPods`` is (karpenter-provider-aws, ``NewInstanceType``)."""


@dataclass(frozen=True, slots=True)
class Requests:
    """Resource requests of one pod."""

    millicpu: int
    memory_mib: int
    gpus: int

    @property
    def resources(self) -> dict[str, dict[str, str]]:
        """A container's ``resources``: memory and GPUs have limits equal to the requests, CPU has none."""
        limits = {"memory": f"{self.memory_mib}Mi", "nvidia.com/gpu": str(self.gpus)}
        return {"requests": {"cpu": f"{self.millicpu}m", **limits}, "limits": limits}


def container(requests: Requests, shm_gib: int | None, **more: Any) -> Container:
    """Return what a pod's container gets by its requests, and ``more`` of `Container`."""
    memory = requests.memory_mib * 2**20
    gpus, shm = tuple(range(requests.gpus)), shared_memory(shm_gib, memory)
    return Container(network="pod", gpus=gpus, shared_memory=shm, memory=memory, **more)


def allocatable(size: InstanceSize) -> tuple[int, int]:
    """Return millicpu and MiB available to pods on a node of this size.

    Source: amazon-eks-ami, ``kubeReserved``: 6 % of the first vCPU, 1 % of the second, 0.5 % of the next two,
    0.25 % of the others; 255 MiB, and 11 MiB for each possible pod.
    """
    shares = [60, 10, 5, 5, *[2.5] * (size.vcpus - 4)][: size.vcpus]
    memory = floor(size.memory_gib * 1024 * (1 - _OVERHEAD)) - _RESERVED_MIB - _EVICTION_MIB - _DAEMONS_MIB
    return floor(size.vcpus * 1000 - sum(shares)) - _DAEMONS_MILLICPU, memory


def job_requests(types: Iterable[str]) -> Requests:
    """Return the requests of a job's pod, which gets a whole node of any of ``types``."""
    chosen = list(types)
    allocatable_per_type = [allocatable(INSTANCE_SIZES[kind]) for kind in chosen]
    gpus = min(catalogue.lookup(kind).accelerators for kind in chosen)
    return Requests(
        min(cpu for cpu, _ in allocatable_per_type), min(memory for _, memory in allocatable_per_type), gpus
    )


def worker_requests(types: Iterable[str], gpus: int = 1) -> Requests:
    """Return the requests of a worker with ``gpus`` GPUs: its share of a node."""
    whole = job_requests(types)
    return Requests(whole.millicpu * gpus // whole.gpus, whole.memory_mib * gpus // whole.gpus, gpus)
