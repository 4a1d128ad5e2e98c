"""What a container gets: the one model of workers, jobs and tenants, under Docker and in pods.

``gpu-spot schema --page`` prints it for each of them.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from contracts.agent.names import CACHE_DIR, SCRATCH_DIR, WORK_HOME

TMP: Final = Path("/tmp")  # noqa: S108 - in the container
UNPRIVILEGED: Final = ("--cap-drop", "ALL", "--security-opt", "no-new-privileges")
"""Options of ``docker run``: no capabilities and no privilege escalation."""
LIMITS: Final = ("nofile=1048576:1048576", "memlock=-1:-1", "core=0")
"""``--ulimit`` values: many open files, locked memory for RDMA and pinned buffers, no core dumps."""
SHARED_MEMORY_SHARE: Final = 0.5
"""Size of ``/dev/shm``, as a share of the container's memory: the kernel's default. Docker's is 64 MiB, too
little for NCCL and data loaders (vLLM guide, "Using Docker"; PyTorch's README, "Docker Image")."""

MountPairs = tuple[tuple[Path, Path], ...]
"""Pairs of a path on the host and its path in the container."""


@dataclass(frozen=True)
class Container:
    """A container without privileges and capabilities.

    Attributes:
        network: ``host``, ``bridge``, or the name of a network of its own.
        gpus: Indexes or UUIDs of its GPUs, or ``all``; they are names of CDI devices.
        shared_memory: Size of ``/dev/shm`` in bytes.
        memory: Its maximum in bytes; None: all of the machine's.
        has_read_only_root: Whether it may write to ``writable`` only.
        writable: Directories mounted read-write; ``read_only`` likewise.
        user: ``uid:gid``; empty: the image's.
        limits: Values of ``--ulimit``.
        has_role: Whether it gets the credentials of the role.
    """

    network: str
    gpus: tuple[int | str, ...] = ()
    shared_memory: int = 0
    memory: int | None = None
    has_read_only_root: bool = False
    writable: MountPairs = ()
    read_only: MountPairs = ()
    user: str = ""
    limits: tuple[str, ...] = ()
    has_role: bool = False

    def docker_run(self, name: str, environment: Path) -> list[str]:
        """Return the beginning of the ``docker run`` command, with an init process.

        The init is needed because the kernel drops a SIGTERM for a PID 1 without a handler
        (pid_namespaces(7)). ``environment`` is a file of variables: they may be secret, which no command line
        may show.
        """
        argv = ["docker", "run", "--init", "--name", name, "--network", self.network, *UNPRIVILEGED]
        for limit in self.limits:
            argv += ["--ulimit", limit]
        for gpu_name in self.gpus:
            argv += gpu(gpu_name)
        for host_path, container_path in self.writable:
            argv += ["--volume", f"{host_path}:{container_path}"]
        for host_path, container_path in self.read_only:
            argv += ["--volume", f"{host_path}:{container_path}:ro"]
        if self.user:
            argv += ["--user", self.user]
        if self.has_read_only_root:
            argv.append("--read-only")
        if self.memory is not None:
            argv += ["--memory", str(self.memory)]
        return [*argv, "--shm-size", str(self.shared_memory), "--env-file", str(environment)]


def gpu(name: int | str) -> tuple[str, str]:
    """Return the options that expose a GPU, by index or UUID (CDI name of NVIDIA's container toolkit)."""
    return "--device", f"nvidia.com/gpu={name}"


def machine_memory() -> int:
    """Return the machine's memory in bytes."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def shared_memory(gib: int | None, memory: int) -> int:
    """Return the size of ``/dev/shm`` in bytes: ``shmGiB``, or by default a share of ``memory``."""
    return int(memory * SHARED_MEMORY_SHARE) if gib is None else gib * 2**30


def scratch_variables() -> dict[str, str]:
    """Return the variables by which frameworks find their caches, on the scratch space.

    Hugging Face's libraries and PyTorch follow ``XDG_CACHE_HOME``, but images set the other two themselves.
    """
    return {
        "GPU_SPOT_SCRATCH": str(SCRATCH_DIR),
        "XDG_CACHE_HOME": str(CACHE_DIR),
        "HF_HOME": str(CACHE_DIR / "huggingface"),
        "TORCH_HOME": str(CACHE_DIR / "torch"),
    }


def worker_variables(*, has_read_only_root: bool) -> dict[str, str]:
    """Return `scratch_variables` of a worker, whose ``HOME`` is the image's if it may write there."""
    return {**scratch_variables(), **({"HOME": str(WORK_HOME)} if has_read_only_root else {})}
