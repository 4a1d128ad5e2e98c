"""What the agent's containers have in common: a pinned image, its way here, and few rights."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

from userdata.agent.machine import log
from userdata.agent.machine.errors import AgentError
from userdata.agent.machine.host import Host

UNPRIVILEGED: Final = ("--cap-drop", "ALL", "--security-opt", "no-new-privileges")
"""Options of ``docker run``: no privileges, and no way to them."""

READ_ONLY: Final = ("--read-only", "--tmpfs", "/tmp")  # noqa: S108 - in there
"""Nothing to write but memory."""

LIMITS: Final = ("nofile=1048576:1048576", "memlock=-1:-1", "core=0")
"""Open files, memory that RDMA and pinned buffers lock, and no core dumps of a model's size."""

Places = Iterable[tuple[Path, Path] | tuple[str, str]]
"""Folders, each as it is called on the host and in the container."""

_METADATA: Final = "169.254.169.254"
# Docker leaves this chain to us, and asks it before its own (Docker's manual, "Docker and iptables").
_CHAIN: Final = "DOCKER-USER"
_REFUSED: Final = ("--destination", _METADATA, "--jump", "REJECT")


_REMOVAL_LOOKS: Final = 60


def gpu(name: int | str) -> tuple[str, str]:
    """Return the options that hand a GPU over, by index or UUID: the container toolkit's CDI names."""
    return "--device", f"nvidia.com/gpu={name}"


def run(
    name: str,
    network: str,
    environment: Path,
    gpus: Iterable[int | str] = (),
    both: Places = (),
    read: Places = (),
    limits: Sequence[str] = (),
) -> list[str]:
    """Return how the ``docker run`` of each of the agent's containers begins: without privileges.

    With an init: the kernel drops a SIGTERM for a first process that has no handler yet
    (pid_namespaces(7)). ``both`` are folders to write into, ``read`` to read only; ``environment`` is a file,
    because what it holds may be told nobody else.
    """
    argv = ["docker", "run", "--init", "--name", name, "--network", network, *UNPRIVILEGED]
    for limit in limits:
        argv += ["--ulimit", limit]
    for one in gpus:
        argv += gpu(one)
    for here, there in both:
        argv += ["--volume", f"{here}:{there}"]
    for here, there in read:
        argv += ["--volume", f"{here}:{there}:ro"]
    return [*argv, "--env-file", str(environment)]


def pull(host: Host, image: str, password: Callable[[], str]) -> None:
    """Pull an image; one in ECR after a login, whose password goes through standard input.

    Raises:
        AgentError: the registry refused or cannot be reached.
    """
    if ".dkr.ecr." in image:
        login = ["docker", "login", "--username", "AWS", "--password-stdin", image.split("/")[0]]
        host.run(login, stdin=password())
    host.run(["docker", "pull", "--quiet", image])


def forget(host: Host, image: str) -> None:
    """Remove an image from the disk; one that is in use, or that is not there, stays as it is."""
    try:
        host.run(["docker", "image", "rm", image])
    except AgentError as error:
        log.info("an image is not removed", image=image, error=str(error))


def shut_metadata(host: Host) -> None:
    """Keep containers on Docker's bridges away from the metadata service, and so from the instance's role.

    The launch template's hop limit of 1 does so already; whoever changes that one lets nobody in by it.
    """
    try:
        host.run(["iptables", "--wait", "--check", _CHAIN, *_REFUSED])
    except AgentError:
        host.run(["iptables", "--wait", "--insert", _CHAIN, *_REFUSED])


def remove(host: Host, name: str) -> None:
    """Remove the container ``name``, running or not; one that is not there is no error.

    Raises:
        AgentError: Docker refused, or has not removed it in half a minute.
    """
    for _ in range(_REMOVAL_LOOKS):
        # Of an unknown one Docker says so and exits with 1 or, from version 20.10 on, with 0.
        if not host.run(["docker", "ps", "--all", "--quiet", "--filter", f"name=^/?{name}$"]).strip():
            return
        try:
            host.run(["docker", "rm", "--force", "--volumes", name])
        except AgentError as error:
            # Most often its end was its removal (`--rm`), which takes a moment; its name is not free before.
            log.info("a container is not removed yet", container=name, error=str(error))
            host.run(["sleep", "0.5"])
        else:
            log.warning("a container that was left over is removed", container=name)
            return
    raise AgentError(f"container {name}: not removed in {_REMOVAL_LOOKS // 2} s")


def check_gpus(host: Host, image: str, expected: int) -> int:
    """Start ``image`` once with all GPUs, as the work will; return how many it sees.

    An image in which ``nvidia-smi`` cannot run, such as one with another C library, counts as seeing them
    all: its container got the devices, or Docker would not have started it.

    Raises:
        AgentError: containers get no GPUs here, or not all of them; the message says what is missing.
    """
    options = ["--rm", "--network", "none", *gpu("all"), *READ_ONLY, *UNPRIVILEGED]
    options += ["--entrypoint", "nvidia-smi"]
    try:
        said = host.run(["docker", "run", *options, image, "--list-gpus"])
    except AgentError as error:
        if "CDI" in str(error) or "nvidia.com/gpu" in str(error):
            raise AgentError(
                f"containers get no GPU: {error}; allowed: a CDI specification of NVIDIA's container toolkit "
                "(nvidia-ctk cdi generate --output=/var/run/cdi/nvidia.yaml), Docker 25 or newer with CDI on"
            ) from None
        if "exit 125:" in str(error):
            raise
        log.warning("GPUs in a container not counted", image=image, error=str(error))
        return expected
    seen = sum(1 for line in said.splitlines() if line.startswith("GPU "))
    if seen != expected:
        raise AgentError(f"a container sees {seen} GPUs, allowed: the {expected} of this machine")
    return seen
