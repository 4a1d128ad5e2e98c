"""Docker containers of the agent: pulling images, removal, GPU check."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from contracts.partitions import ECR_IMAGE
from userdata.agent.machine import log
from userdata.agent.machine.accounts import insert_rule
from userdata.agent.machine.errors import AgentError, CommandError
from userdata.agent.machine.host import LOAD, QUICK, SLOW, Host
from userdata.agent.work.container import UNPRIVILEGED, gpu

# In the chain for user rules, evaluated before Docker's own. Source: Docker manual, "Docker and iptables".
_REJECT_RULE: Final = ("DOCKER-USER", "--destination", "169.254.169.254", "--jump", "REJECT")

CDI_SPECIFICATION: Final = "/var/run/cdi/nvidia.yaml"
_MAX_REMOVAL_ATTEMPTS: Final = 60
"""Attempts to remove a container, half a second apart."""


def log_in(host: Host, image: str, password: Callable[[str], str]) -> None:
    """Log in to an image's registry if that is ECR (the password goes through standard input).

    ``password`` returns that of a region: none is valid in another.

    Raises:
        AgentError: the registry rejected the request or is unreachable.
    """
    if ecr := ECR_IMAGE.match(image):
        login = ["docker", "login", "--username", "AWS", "--password-stdin", ecr["host"]]
        host.run(login, QUICK, stdin=password(ecr["region"]))


def pull(host: Host, image: str, password: Callable[[str], str]) -> None:
    """Pull an image unless it is on the disk, as its digest names the same one; see `log_in`.

    Raises:
        AgentError: the registry rejected the request or is unreachable.
    """
    with contextlib.suppress(CommandError):
        if host.run(["docker", "image", "inspect", "--format", "{{.Id}}", image], QUICK).strip():
            return
    log_in(host, image, password)
    host.run(["docker", "pull", "--quiet", image], LOAD)


def remove_image(host: Host, image: str) -> bool:
    """Remove an image from the disk; return False if it is still there: in use, or Docker failed."""
    try:
        host.run(["docker", "image", "rm", image], SLOW)
    except AgentError as error:
        log.info("image not removed", image=image, error=str(error))
        return "No such image" in str(error)
    return True


def block_metadata(host: Host) -> None:
    """Block the metadata service, and so the instance role, for containers on Docker's bridges.

    The hop limit of 1 in the launch template does so already; this rule holds if that limit is raised.
    """
    insert_rule(host, ["iptables", *_REJECT_RULE])


def remove(host: Host, name: str) -> None:
    """Remove the container ``name``, running or not; a missing container is not an error.

    Raises:
        AgentError: Docker failed, or the container still exists after 30 s.
    """
    for _ in range(_MAX_REMOVAL_ATTEMPTS):
        # `docker rm` of an unknown container exits with 1 or, since version 20.10, with 0.
        if not host.run(["docker", "ps", "--all", "--quiet", "--filter", f"name=^/?{name}$"], QUICK).strip():
            return
        try:
            host.run(["docker", "rm", "--force", "--volumes", name], SLOW)
        except AgentError as error:
            # Usually `--rm` is removing it at this moment; its name is in use until then.
            log.info("container not removed yet", container=name, error=str(error))
            host.run(["sleep", "0.5"], QUICK)
        else:
            log.warning("leftover container removed", container=name)
            return
    raise AgentError(f"container {name}: not removed in {_MAX_REMOVAL_ATTEMPTS // 2} s")


def generate_specification(host: Host) -> None:
    """Write the CDI specification of the machine's GPUs, by which containers get them.

    Toolkits from 1.18 on do so at boot (container toolkit manual, "Automatic CDI Specification Generation").
    """
    host.run(["nvidia-ctk", "cdi", "generate", f"--output={CDI_SPECIFICATION}"], QUICK)


def generate_missing_specification(host: Host, kernel: Path = Path("/")) -> None:
    """Write the CDI specification unless a toolkit did so in this boot; a failure is only logged.

    Docker reads both folders (Docker manual, "Container Device Interface").
    """
    if any([*(kernel / folder).glob("nvidia*")] for folder in ("etc/cdi", "var/run/cdi")):
        return
    try:
        generate_specification(host)
    except AgentError as error:
        log.warning("CDI specification not generated", error=str(error))


def _lacks_specification(error: AgentError) -> bool:
    return "CDI" in str(error) or "nvidia.com/gpu" in str(error)


def _run_with_specification(host: Host, command: Sequence[str]) -> str:
    """Run ``command``; if it lacks the CDI specification, generate that and run it again."""
    try:
        return host.run(command, SLOW)
    except AgentError as error:
        if not _lacks_specification(error):
            raise
        try:
            generate_specification(host)
        except AgentError as failure:
            raise AgentError(f"{error}; {failure}") from None
    log.info("CDI specification generated", path=CDI_SPECIFICATION)
    return host.run(command, SLOW)


def check_gpus(host: Host, image: str, expected: int) -> int:
    """Start ``image`` once with all GPUs, as the workload will, and return how many it sees.

    If ``nvidia-smi`` cannot run in the image (another C library, say), return ``expected``: Docker starts a
    container only if it can attach the devices.

    Raises:
        AgentError: containers do not get all GPUs; the message says what is missing.
    """
    options = ["--rm", "--network", "none", *gpu("all"), "--read-only", *UNPRIVILEGED]
    command = ["docker", "run", *options, "--entrypoint", "nvidia-smi", image, "--list-gpus"]
    try:
        output = _run_with_specification(host, command)
    except AgentError as error:
        if _lacks_specification(error):
            raise AgentError(
                f"containers get no GPU: {error}; install a CDI specification of NVIDIA's container toolkit "
                f"(nvidia-ctk cdi generate --output={CDI_SPECIFICATION}), and Docker 25 or newer with CDI on"
            ) from None
        if "exit 125:" in str(error):
            raise
        log.warning("GPUs in container not counted", image=image, error=str(error))
        return expected
    visible = sum(1 for line in output.splitlines() if line.startswith("GPU "))
    if visible != expected:
        raise AgentError(f"the container sees {visible} GPUs, not {expected}")
    return visible
