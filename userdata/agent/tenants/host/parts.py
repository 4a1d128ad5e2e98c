"""GPUs of a slice: names for the plan, UUIDs for the container; MIG instances are created as planned.

MIG instances (NVIDIA multi-instance GPU) that overlap the requested one, and those on a GPU that a tenant has
as a whole, are destroyed: `steps.reconcile` starts a tenant only when no container uses its GPUs, and the
driver refuses to destroy an instance that is in use. Not tested on real GPUs.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from userdata.agent.machine import log
from userdata.agent.machine.errors import AgentError
from userdata.agent.machine.host import SLOW, Host
from userdata.agent.tenants import gpus
from userdata.agent.tenants.model import HostShape, MigInstance, Slice
from userdata.agent.work.containers import generate_specification


@dataclass(frozen=True)
class _Existing:
    """A GPU instance: id, compute slices, memory slices to before ``end``, UUID (empty: has no compute)."""

    id: int
    slices: int
    start: int
    end: int
    uuid: str


@dataclass(frozen=True)
class GpuParts:
    """The GPUs of this machine; ``nvml`` is the module ``pynvml``, or None without NVIDIA GPUs."""

    host: Host
    nvml: Any | None

    def names(self, part: Slice) -> tuple[str, ...]:
        """Return names of a slice's GPUs that do not change: UUIDs, or a MIG instance's position.

        A UUID names the same GPU where an index changes, such as after the loss of another one.

        Raises:
            AgentError: the driver does not respond.
        """
        if part.mig is not None:
            return (f"MIG {part.mig.profile} at {part.mig.gpu}:{part.mig.start}",)
        return tuple(self._uuid(gpu) for gpu in part.gpus)

    def prepare(self, part: Slice, shape: HostShape) -> list[str]:
        """Return the UUIDs of a slice's GPUs, which are also their CDI names; no container uses them now.

        Creates a missing MIG instance, and makes a partitioned GPU whole. NVIDIA's CDI specification has
        UUIDs since its container toolkit 1.15 (pull request 314).

        Raises:
            AgentError: the driver does not respond, or an instance cannot be created or destroyed, or is not
                listed afterwards.
        """
        if part.mig is not None:
            return [self._mig_uuid(part.mig, gpus.profile(shape, part.mig.profile).size)]
        for gpu in part.gpus if shape.mig else ():
            self._make_whole(gpu)
        return list(self.names(part))

    def _mig_uuid(self, requested: MigInstance, size: int) -> str:
        end = requested.start + size
        uuids = self._exact(requested, end)  # none of an instance whose destruction did not end
        if not uuids:
            for existing in self._instances(requested.gpu):
                if existing.start < end and requested.start < existing.end:
                    self._destroy(requested.gpu, existing)
            create_mig_instance(self.host, requested)
            uuids = self._exact(requested, end)
        if not uuids:
            raise AgentError(
                f"MIG {requested.profile} at {requested.gpu}:{requested.start}: not listed after its creation"
            )
        return uuids[0]

    def _exact(self, requested: MigInstance, end: int) -> list[str]:
        slices = int(requested.profile.partition("g")[0])  # 3g and 4g have the same memory slices
        return [
            existing.uuid
            for existing in self._instances(requested.gpu)
            if (existing.slices, existing.start, existing.end) == (slices, requested.start, end)
            if existing.uuid
        ]

    def _make_whole(self, gpu: int) -> None:
        if not _is_partitioned(self.host, gpu):
            return
        for existing in self._instances(gpu):
            self._destroy(gpu, existing)
        _set_mode(self.host, gpu, is_partitioned=False)
        generate_specification(self.host)
        log.info("MIG mode disabled", gpu=gpu)

    def _destroy(self, gpu: int, existing: _Existing) -> None:
        chosen = ["-i", str(gpu), "-gi", str(existing.id)]
        if existing.uuid:
            self.host.run(["nvidia-smi", "mig", "-dci", *chosen], SLOW)
        self.host.run(["nvidia-smi", "mig", "-dgi", *chosen], SLOW)
        log.info("MIG instance destroyed", gpu=gpu, start=existing.start, end=existing.end)

    def _uuid(self, gpu: int) -> str:
        nvml = self.nvml
        if nvml is None:
            raise AgentError(f"GPU {gpu}: this machine has no NVIDIA driver")
        try:
            nvml.nvmlInit()
            return _text(nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetHandleByIndex(gpu)))
        except nvml.NVMLError as error:
            raise AgentError(f"UUID of GPU {gpu} cannot be read: {error}") from None

    def _instances(self, gpu: int) -> list[_Existing]:
        """Return the GPU instances of a GPU; raises `AgentError`."""
        nvml = self.nvml
        if nvml is None:
            return []
        try:
            nvml.nvmlInit()
            return list(_existing(nvml, nvml.nvmlDeviceGetHandleByIndex(gpu)))
        except nvml.NVMLError as error:
            raise AgentError(f"MIG of GPU {gpu} cannot be read: {error}") from None


def create_mig_instance(host: Host, requested: MigInstance) -> None:
    """Create a MIG instance with its compute instance, and update the CDI specification."""
    gpu = str(requested.gpu)
    if not _is_partitioned(host, requested.gpu):
        _set_mode(host, requested.gpu, is_partitioned=True)
    host.run(["nvidia-smi", "mig", "-i", gpu, "-cgi", f"{requested.profile}:{requested.start}", "-C"], SLOW)
    generate_specification(host)
    log.info("MIG instance created", gpu=requested.gpu, profile=requested.profile, start=requested.start)


def _set_mode(host: Host, gpu: int, *, is_partitioned: bool) -> None:
    """Change the MIG mode; where the GPU is in use, nvidia-smi succeeds and the change is pending only."""
    host.run([*_of(gpu), "-mig", str(int(is_partitioned))], SLOW)
    if _is_partitioned(host, gpu) != is_partitioned:
        state = "enabled" if is_partitioned else "disabled"
        raise AgentError(f"MIG mode of GPU {gpu} is not {state} yet; stop what uses the GPU, or reboot")


def _is_partitioned(host: Host, gpu: int) -> bool:
    mode = host.run([*_of(gpu), "--query-gpu=mig.mode.current", "--format=csv,noheader"], SLOW)
    return mode.strip() == "Enabled"


def _of(gpu: int) -> Sequence[str]:
    return "nvidia-smi", "-i", str(gpu)


def _existing(nvml: Any, gpu: Any) -> Iterator[_Existing]:
    uuids: dict[int, str] = {}
    for number in range(nvml.nvmlDeviceGetMaxMigDeviceCount(gpu)):
        try:
            handle = nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, number)
        except nvml.NVMLError_NotFound:
            continue
        uuids.setdefault(nvml.nvmlDeviceGetGpuInstanceId(handle), _text(nvml.nvmlDeviceGetUUID(handle)))
    for profile in range(nvml.NVML_GPU_INSTANCE_PROFILE_COUNT):
        try:
            info = nvml.nvmlDeviceGetGpuInstanceProfileInfo(gpu, profile)
        except (nvml.NVMLError_NotSupported, nvml.NVMLError_InvalidArgument):
            continue  # this GPU or driver does not have the profile
        # As many as the profile supports. Source: NVML API reference, "nvmlDeviceGetGpuInstances".
        handles, count = (nvml.c_nvmlGpuInstance_t * info.instanceCount)(), ctypes.c_uint(info.instanceCount)
        try:
            nvml.nvmlDeviceGetGpuInstances(gpu, info.id, handles, ctypes.byref(count))
        except nvml.NVMLError_NotSupported:
            return  # MIG mode is disabled
        for handle in handles[: count.value]:
            instance = nvml.nvmlGpuInstanceGetInfo(handle)
            start, end = instance.placement.start, instance.placement.start + instance.placement.size
            yield _Existing(instance.id, info.sliceCount, start, end, uuids.get(instance.id, ""))


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
