"""A tenant's share as a container: the command that runs it, and what Docker says of those that run."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from userdata.agent import containers
from userdata.agent.errors import AgentError
from userdata.agent.host import Host
from userdata.agent.names import NOTICE_FILE
from userdata.agent.slices.model import Share, Tenant

LABEL_TENANT: Final = "gpu-spot.tenant"
LABEL_SPEC: Final = "gpu-spot.spec"
LABEL_SHARE: Final = "gpu-spot.share"

_ALIVE: Final = ("running", "restarting")


@dataclass(frozen=True)
class Found:
    """A container of ours. ``share`` is empty where its label cannot be read."""

    id: str
    tenant: str
    spec: str
    share: Share
    alive: bool


def name_of(tenant: str) -> str:
    """Return the name of a tenant's container, and of his network."""
    return f"gpu-spot-tenant-{tenant}"


def environment_file(directory: Path, tenant: str) -> Path:
    """Return the file that holds a tenant's environment, which may hold secrets: never in a command line."""
    return directory / "slices" / f"{tenant}.env"


def public(directory: Path) -> Path:
    """Return the folder that all tenants see: the notice, and nothing else of ours."""
    return directory / "public"


def environment(tenant: Tenant, directory: Path) -> list[str]:
    """Return a container's environment, the tenant's own last."""
    notice = public(directory) / NOTICE_FILE
    return [f"GPU_SPOT_TENANT={tenant.name}", f"GPU_SPOT_NOTICE={notice}", *tenant.environment]


def run_command(tenant: Tenant, share: Share, directory: Path) -> list[str]:
    """Return the argv that starts a tenant's container; Docker restarts it when it ends.

    A bridge of its own: the metadata service, with hop limit 1, and with it the instance's role are out of
    reach. GPUs by UUID, which is the same after a reboot without one of them.
    """
    name, memory = name_of(tenant.name), f"{share.memory_gib}g"
    argv = ["docker", "run", "--detach", "--init", "--name", name, "--restart", "unless-stopped"]
    argv += ["--network", name, "--user", f"{tenant.user}:{tenant.user}", *containers.CONFINED]
    argv += ["--cpus", str(len(share.cpus)), "--cpuset-cpus", ",".join(map(str, share.cpus))]
    argv += ["--memory", memory, "--memory-swap", memory]  # both the same: no swap
    # Data loaders hand batches over in shared memory; it counts as the container's.
    argv += ["--shm-size", f"{share.memory_gib * 512}m", "--pids-limit", str(tenant.pids)]
    argv += ["--log-driver", "local"]  # rotates: a tenant's output cannot fill the disk
    for gpu in share.gpus:
        argv += containers.gpu(gpu)
    if share.port:
        argv += ["--publish", f"{share.port}:{tenant.port}/tcp"]
    shown = public(directory)
    mounts = [(str(shown), str(shown), True)]
    mounts += [(v.host_path, v.container_path, v.read_only) for v in tenant.volumes]
    for source, target, read_only in mounts:
        # Unlike --volume, --mount makes no folder where one is missing.
        argv += ["--mount", f"type=bind,src={source},dst={target}{',readonly' if read_only else ''}"]
    argv += ["--env-file", str(environment_file(directory, tenant.name))]
    argv += ["--label", f"{LABEL_TENANT}={tenant.name}"]
    argv += ["--label", f"{LABEL_SHARE}={json.dumps(asdict(share), separators=(',', ':'))}"]
    argv += ["--label", f"{LABEL_SPEC}={_hash(argv, environment(tenant, directory), tenant)}"]
    return [*argv, tenant.image, *tenant.command]


def spec_of(argv: Sequence[str]) -> str:
    """Return the hash in a `run_command`: another one is another container."""
    [label] = [part for part in argv if part.startswith(f"{LABEL_SPEC}=")]
    return label.partition("=")[2]


def _hash(argv: Sequence[str], environment: Sequence[str], tenant: Tenant) -> str:
    text = json.dumps([*argv, environment, tenant.image, tenant.command])
    return hashlib.sha256(text.encode()).hexdigest()


def network_command(tenant: str) -> list[str]:
    """Return the argv that makes a tenant's bridge."""
    name = name_of(tenant)
    return ["docker", "network", "create", "--driver", "bridge", "--label", f"{LABEL_TENANT}={tenant}", name]


def running(host: Host) -> list[Found]:
    """Return the tenants' containers, dead ones, too."""
    listing = ["docker", "container", "ls", "--all", "--quiet", "--no-trunc"]
    ids = host.run([*listing, "--filter", f"label={LABEL_TENANT}"]).split()
    if not ids:
        return []
    try:
        return [_found(one) for one in json.loads(host.run(["docker", "container", "inspect", *ids]))]
    except (ValueError, KeyError, TypeError) as error:
        raise AgentError(f"docker container inspect: {type(error).__name__}: {error}") from None


def networks(host: Host) -> set[str]:
    """Return the tenants whose bridge is there."""
    listing = ["docker", "network", "ls", "--filter", f"label={LABEL_TENANT}", "--format", "{{.Name}}"]
    return {name.removeprefix(name_of("")) for name in host.run(listing).split()}


def _found(document: dict[str, Any]) -> Found:
    labels = document["Config"]["Labels"]
    return Found(
        document["Id"],
        labels[LABEL_TENANT],
        labels.get(LABEL_SPEC, ""),
        _share(labels.get(LABEL_SHARE, "")),
        document["State"]["Status"] in _ALIVE,
    )


def _share(label: str) -> Share:
    try:
        told = json.loads(label)
        return Share(tuple(told["gpus"]), tuple(told["cpus"]), int(told["memory_gib"]), int(told["port"]))
    except (ValueError, KeyError, TypeError):
        return Share()
