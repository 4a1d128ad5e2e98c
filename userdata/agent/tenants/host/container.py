"""A tenant's container as commands: how it is started, and what of it changes while it runs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from contracts.agent.names import NOTICE_FILE, RUN_DIR, WORKERS_DIR
from userdata.agent.tenants import codec
from userdata.agent.tenants.model import Slice, Tenant
from userdata.agent.work import containers

LABEL_TENANT: Final = "gpu-spot.tenant"
LABEL_SLICE: Final = "gpu-spot.slice"
LABEL_SPEC: Final = "gpu-spot.spec"
"""A hash of all that takes another container to change."""

BRIDGES: Final = "gst-"
"""How the names of the tenants' bridges begin; `walls` goes by them."""

PIDS: Final = 4096
"""Processes and threads that a tenant may have: fork bombs end there."""

_TMP: Final = "/tmp"  # noqa: S108 - in there
_TMP_PART: Final = 4
"""Of the memory that a tenant has, `/tmp` may take one in so many."""
_LOG_MIB: Final = 20
_STOP_SECONDS: Final = 30


@dataclass(frozen=True)
class HostPlace:
    """Where tenants are on this host: its private address, the agent's folder, and that of their volumes."""

    address: str
    run: Path
    data: Path

    def home(self, tenant: str) -> Path:
        """Return where a tenant's volume is mounted."""
        return self.data / tenant

    def told(self, tenant: str) -> Path:
        """Return the folder that a tenant sees as ``/run/gpu-spot``: the notice, and nothing else of ours."""
        return self.run / "tenants" / tenant

    def environment(self, tenant: str) -> Path:
        """Return the file with a tenant's environment, which may hold secrets: for root alone."""
        return self.run / WORKERS_DIR / f"{tenant}.env"

    def record(self, tenant: str) -> Path:
        """Return the file by which GPUs' processes are known to be the tenant's (`metrics.owner`)."""
        return self.run / WORKERS_DIR / f"{tenant}.json"


def name_of(tenant: str) -> str:
    """Return the name of a tenant's container, and of its network."""
    return f"gpu-spot-tenant-{tenant}"


def bridge_of(tenant: Tenant) -> str:
    """Return the name of a tenant's bridge; the kernel takes 15 characters, so it goes by the user."""
    return f"{BRIDGES}{tenant.uid}"


def network_command(tenant: Tenant) -> list[str]:
    """Return the command that makes a tenant's bridge; no other container is on it."""
    bridge = f"com.docker.network.bridge.name={bridge_of(tenant)}"
    label = f"{LABEL_TENANT}={tenant.name}"
    return ["docker", "network", "create", "--opt", bridge, "--label", label, name_of(tenant.name)]


def environment(tenant: Tenant) -> dict[str, str]:
    """Return a container's environment; ours count before the tenant's.

    By ``NVIDIA_VISIBLE_DEVICES`` an image would ask NVIDIA's runtime: GPUs come by CDI and no other way.
    """
    ours = {
        "GPU_SPOT_TENANT": tenant.name,
        "GPU_SPOT_NOTICE": str(RUN_DIR / NOTICE_FILE),
        "NVIDIA_VISIBLE_DEVICES": "void",
    }
    return {"HOME": "/data", **tenant.environment, **ours}


def run_command(tenant: Tenant, part: Slice, gpus: Sequence[str], shares: int, place: HostPlace) -> list[str]:
    """Return the command that starts a tenant's container, with the label by which it is known again.

    Who ends is started again by `landlord`, never by Docker, which would do so at a boot before the volume is
    there. ``gpus`` are CDI names without their kind; ``shares`` are those that make the slice's weight here.
    """
    told = environment(tenant)
    wanted = replace(part, cpus=(), weight=0)
    argv = _command(tenant, wanted, gpus, place)
    text = json.dumps([argv, told, tenant.image, tenant.command], sort_keys=True)
    live = ["--cpu-shares", str(shares), "--cpuset-cpus", part.cpuset]
    for key, value in (
        (LABEL_TENANT, tenant.name),
        (LABEL_SLICE, codec.encode_slice(part)),
        (LABEL_SPEC, hashlib.sha256(text.encode()).hexdigest()),
    ):
        live += ["--label", f"{key}={value}"]
    return [*argv, *live, tenant.image, *tenant.command]


def _command(tenant: Tenant, part: Slice, gpus: Sequence[str], place: HostPlace) -> list[str]:
    home, memory = place.home(tenant.name), str(part.memory_bytes)
    argv = containers.run(
        name_of(tenant.name),
        name_of(tenant.name),
        place.environment(tenant.name),
        gpus,
        [(str(home / "data"), "/data"), (str(home / "log"), "/log")],
        [(place.told(tenant.name), RUN_DIR)],
        containers.LIMITS,
    )
    argv += ["--detach", "--restart", "no", "--pull", "never", "--runtime", "runc"]
    argv += ["--user", f"{tenant.uid}:{tenant.uid}", "--read-only"]
    # `exec`: compilers of kernels load what they have written there.
    size = part.memory_bytes // _TMP_PART
    argv += ["--tmpfs", f"{_TMP}:rw,exec,nosuid,nodev,mode=1777,size={size}"]
    argv += ["--memory", memory, "--memory-swap", memory]  # both the same: no swap
    # Data loaders hand batches over in shared memory, which counts as the container's.
    argv += ["--shm-size", str(part.memory_bytes // 2), "--pids-limit", str(PIDS)]
    argv += ["--stop-timeout", str(_STOP_SECONDS)]
    # Rotates: what a tenant prints fills no disk of the host.
    argv += ["--log-driver", "local", "--log-opt", f"max-size={_LOG_MIB}m", "--log-opt", "max-file=2"]
    if tenant.host_port is not None:
        # Session Manager forwards to the host's own loopback, which no container reaches.
        for address in (place.address, "127.0.0.1"):
            argv += ["--publish", f"{address}:{tenant.host_port}:{tenant.container_port}/tcp"]
    return argv


def spec_of(argv: Sequence[str]) -> str:
    """Return the hash in a `run_command`."""
    [label] = [one for one in argv if one.startswith(f"{LABEL_SPEC}=")]
    return label.partition("=")[2]


def update_command(tenant: str, part: Slice, shares: int) -> list[str]:
    """Return the command that changes the CPUs of a container that runs."""
    options = ["--cpu-shares", str(shares), "--cpuset-cpus", part.cpuset]
    return ["docker", "update", *options, name_of(tenant)]
