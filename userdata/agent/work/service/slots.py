"""The slots of a service's workers on a machine, and the command of each worker: a process or a container."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from contracts.agent.config import Service
from contracts.agent.names import SCRATCH_DIR, WORKERS_DIR
from userdata.agent.machine.errors import AgentError
from userdata.agent.storage import scratch
from userdata.agent.work import worker_report_file
from userdata.agent.work.container import TMP, Container, machine_memory, shared_memory

_GPUS: Final = Path("/proc/driver/nvidia/gpus")


def gpu_count(directory: Path = _GPUS) -> int:
    """Count the GPUs that the NVIDIA driver shows; raise `AgentError` if there is none."""
    count = sum(1 for _ in directory.glob("*")) if directory.is_dir() else 0
    if not count:
        raise AgentError(f"{directory}: no GPU; is the NVIDIA driver loaded?")
    return count


@dataclass(frozen=True)
class Slot:
    """One worker's slot: its number, the index of its first GPU in PCI order, and the number of its GPUs."""

    number: int
    gpu: int
    gpu_count: int = 1

    @property
    def gpus(self) -> tuple[int, ...]:
        """Indexes of its GPUs."""
        return tuple(range(self.gpu, self.gpu + self.gpu_count))


def slots(service: Service, gpus: int) -> tuple[Slot, ...]:
    """Return the slots: ``slotsPerGpu`` consecutive slots share a GPU, or each has ``gpusPerWorker`` of them.

    GPUs that follow each other in PCI order, in sets that begin at a multiple of their size, are under one
    switch and NUMA node on AWS's types (``nvidia-smi topo -m``), and those of NVSwitch types are all linked.
    """
    if (count := service.gpus_per_worker) > 1:
        return tuple(Slot(n, n * count, count) for n in range(gpus // count))
    return tuple(Slot(n, n // service.slots_per_gpu) for n in range(gpus * service.slots_per_gpu))


def environment(slot: Slot, directory: Path) -> dict[str, str]:
    """Return the variables of every worker: its slot, and the files that it shares with the agent."""
    return {
        "GPU_SPOT_SLOT": str(slot.number),
        "GPU_SPOT_NOTICE": str(directory / "notice.json"),
        "GPU_SPOT_READY": str(ready_file(slot, directory)),
        "GPU_SPOT_TELL": str(worker_report_file.report_path(directory, slot.number)),
    }


def ready_file(slot: Slot, directory: Path) -> Path:
    """Return the file with which a worker reports that it is ready."""
    return worker_report_file.worker_directory(directory, slot.number) / "ready"


def container(slot: Slot) -> str:
    """Return the name of a worker's container."""
    return f"gpu-spot-{slot.number}"


def with_variables(command: Sequence[str], variables: Mapping[str, str]) -> tuple[str, ...]:
    """Return a command with ``$(NAME)`` replaced by the value of each variable, as Kubernetes does."""
    expanded = list(command)
    for name, value in variables.items():
        expanded = [argument.replace(f"$({name})", value) for argument in expanded]
    return tuple(expanded)


def process_command(
    service: Service, slot: Slot, directory: Path, port: Mapping[str, str] | None = None
) -> list[str]:
    """Return the argv of a worker that is a plain process; it sees only its GPUs.

    ``port`` are the variables with an HTTP worker's port.
    """
    pairs = {
        **environment(slot, directory),
        **(port or {}),
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": ",".join(map(str, slot.gpus)),
    }
    return ["env", *variable_lines({**pairs, **service.environment}), *service.command]


def worker_container(
    service: Service,
    slot: Slot,
    directory: Path,
    datasets: Sequence[str] = (),
    workers: int = 1,
    memory: int | None = None,
) -> Container:
    """Return what a worker's container gets on a machine with this number of ``workers`` and bytes of memory.

    It uses the host's network: with hop limit 1 the metadata service, and so the worker's credentials, cannot
    be reached across a bridge. ``datasets`` are mounted read-only.
    """
    ready = ready_file(slot, directory).parent
    return Container(
        network="host",
        gpus=slot.gpus,
        shared_memory=shared_memory(service.shm_gib, (memory or machine_memory()) // workers),
        has_read_only_root=service.read_only_root,
        writable=((ready, ready), (SCRATCH_DIR, SCRATCH_DIR), (scratch.worker_tmp(slot.number), TMP)),
        read_only=((directory, directory), *((Path(path), Path(path)) for path in datasets)),
        has_role=True,
    )


def container_command(
    service: Service, slot: Slot, directory: Path, datasets: Sequence[str] = (), workers: int = 1
) -> list[str]:
    """Return the argv of a worker in a container, run in the foreground so that signals reach it."""
    folder = directory / WORKERS_DIR
    limits = worker_container(service, slot, directory, datasets, workers)
    argv = limits.docker_run(container(slot), folder / f"{slot.number}.env")
    argv += ["--rm", "--cidfile", str(folder / f"{slot.number}.cid")]
    assert service.image is not None
    return [*argv, service.image, *service.command]


def variable_lines(environment: Mapping[str, str]) -> list[str]:
    """Return variables as ``env`` and ``docker run --env-file`` read them."""
    return [f"{name}={value}" for name, value in environment.items()]
