"""Parts of GPUs (NVIDIA's multi-instance GPUs): cut as the plan says, and known by their UUID.

Untried on real GPUs. Nothing is taken away from a GPU that has parts, as a tenant may run on it: a part that
is not in the plan stays until the next boot, and one that does not fit beside it is the driver's error.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from userdata.agent.machine import log
from userdata.agent.machine.errors import AgentError
from userdata.agent.machine.host import Host
from userdata.agent.tenants.model import MigInstance, Slice

_SPECIFICATION = "/var/run/cdi/nvidia.yaml"


def devices(host: Host, nvml: Any | None, part: Slice) -> Sequence[str]:
    """Return the CDI names of a slice's GPUs, without their kind; a part of one is cut unless it is there.

    Raises:
        AgentError: the driver refuses to cut it, or does not show it.
    """
    if part.mig is None:
        return [str(gpu) for gpu in part.gpus]
    found = find(nvml, part.mig)
    if found is None:
        cut(host, part.mig)
        found = find(nvml, part.mig)
    if found is None:
        raise AgentError(
            f"MIG {part.mig.profile} at {part.mig.gpu}:{part.mig.start}: not there after it was cut"
        )
    return [found]


def cut(host: Host, wanted: MigInstance) -> None:
    """Cut a part, with its compute instance, and let the container toolkit describe it."""
    gpu = str(wanted.gpu)
    mode = host.run(["nvidia-smi", "-i", gpu, "--query-gpu=mig.mode.current", "--format=csv,noheader"])
    if mode.strip() != "Enabled":
        host.run(["nvidia-smi", "-i", gpu, "-mig", "1"])
    host.run(["nvidia-smi", "mig", "-i", gpu, "-cgi", f"{wanted.profile}:{wanted.start}", "-C"])
    host.run(["nvidia-ctk", "cdi", "generate", f"--output={_SPECIFICATION}"])
    log.info("GPU cut", gpu=wanted.gpu, profile=wanted.profile, start=wanted.start)


def find(nvml: Any | None, wanted: MigInstance) -> str | None:
    """Return the UUID of a part that begins where ``wanted`` does, None without one.

    Raises:
        AgentError: the driver does not answer.
    """
    if nvml is None:
        return None
    try:
        nvml.nvmlInit()
        gpu = nvml.nvmlDeviceGetHandleByIndex(wanted.gpu)
        for number in range(nvml.nvmlDeviceGetMaxMigDeviceCount(gpu)):
            try:
                one = nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, number)
            except nvml.NVMLError_NotFound:
                continue
            instance = nvml.nvmlDeviceGetGpuInstanceById(gpu, nvml.nvmlDeviceGetGpuInstanceId(one))
            if nvml.nvmlGpuInstanceGetInfo(instance).placement.start == wanted.start:
                uuid: str | bytes = nvml.nvmlDeviceGetUUID(one)
                return uuid.decode() if isinstance(uuid, bytes) else uuid
    except nvml.NVMLError as error:
        raise AgentError(f"MIG of GPU {wanted.gpu} cannot be read: {error}") from None
    return None
