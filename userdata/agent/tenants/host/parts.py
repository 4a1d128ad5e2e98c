"""UUIDs of GPUs, and of MIG instances (NVIDIA multi-instance GPU), which are created as planned.

Not tested on real GPUs. Existing MIG instances are never destroyed, as a tenant may run on them: one that is
not in the plan stays until the next boot, and if another does not fit next to it the driver raises an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from userdata.agent.machine import log
from userdata.agent.machine.errors import AgentError
from userdata.agent.machine.host import Host
from userdata.agent.tenants.model import MigInstance, Slice
from userdata.agent.work.containers import generate_specification


def gpu_uuids(host: Host, nvml: Any | None, part: Slice) -> Sequence[str]:
    """Return the UUIDs of a slice's GPUs, which are also their CDI names; creates a missing MIG instance.

    A UUID names the same GPU where an index changes, such as after the loss of another one. NVIDIA's CDI
    specification has both names since its container toolkit 1.15 (pull request 314).

    Raises:
        AgentError: the driver does not respond, cannot create the MIG instance, or does not list it
            afterwards.
    """
    if part.mig is None:
        return [_uuid(nvml, gpu) for gpu in part.gpus]
    uuid = find_mig_uuid(nvml, part.mig)
    if uuid is None:
        create_mig_instance(host, part.mig)
        uuid = find_mig_uuid(nvml, part.mig)
    if uuid is None:
        raise AgentError(
            f"MIG {part.mig.profile} at {part.mig.gpu}:{part.mig.start}: not listed after its creation"
        )
    return [uuid]


def create_mig_instance(host: Host, requested: MigInstance) -> None:
    """Create a MIG instance with its compute instance, and update the CDI specification."""
    gpu = str(requested.gpu)
    mode = host.run(["nvidia-smi", "-i", gpu, "--query-gpu=mig.mode.current", "--format=csv,noheader"])
    if mode.strip() != "Enabled":
        host.run(["nvidia-smi", "-i", gpu, "-mig", "1"])
    host.run(["nvidia-smi", "mig", "-i", gpu, "-cgi", f"{requested.profile}:{requested.start}", "-C"])
    generate_specification(host)
    log.info("MIG instance created", gpu=requested.gpu, profile=requested.profile, start=requested.start)


def _uuid(nvml: Any | None, gpu: int) -> str:
    if nvml is None:
        raise AgentError(f"GPU {gpu}: this machine has no NVIDIA driver")
    try:
        nvml.nvmlInit()
        return _text(nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetHandleByIndex(gpu)))
    except nvml.NVMLError as error:
        raise AgentError(f"UUID of GPU {gpu} cannot be read: {error}") from None


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def find_mig_uuid(nvml: Any | None, requested: MigInstance) -> str | None:
    """Return the UUID of the MIG instance at the requested position, None if there is none.

    Raises:
        AgentError: the driver does not respond.
    """
    if nvml is None:
        return None
    try:
        nvml.nvmlInit()
        gpu = nvml.nvmlDeviceGetHandleByIndex(requested.gpu)
        for number in range(nvml.nvmlDeviceGetMaxMigDeviceCount(gpu)):
            try:
                handle = nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, number)
            except nvml.NVMLError_NotFound:
                continue
            instance = nvml.nvmlDeviceGetGpuInstanceById(gpu, nvml.nvmlDeviceGetGpuInstanceId(handle))
            if nvml.nvmlGpuInstanceGetInfo(instance).placement.start == requested.start:
                return _text(nvml.nvmlDeviceGetUUID(handle))
    except nvml.NVMLError as error:
        raise AgentError(f"MIG of GPU {requested.gpu} cannot be read: {error}") from None
    return None
