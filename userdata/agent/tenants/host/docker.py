"""Docker client of the supervisor: list, start, stop and remove tenants' containers."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any, Final

from userdata.agent.machine.errors import AgentError, ConfigError
from userdata.agent.machine.host import QUICK, SLOW, Host
from userdata.agent.tenants import codec
from userdata.agent.tenants.host import container
from userdata.agent.tenants.host.steps import TenantContainer
from userdata.agent.tenants.model import Slice

_DAEMONS: Final = ("docker.service", "containerd.service")
_RANGE: Final = re.compile(r"(\d+)(?:-(\d+))?")


def list_containers(host: Host) -> dict[str, TenantContainer]:
    """Return the tenants' containers by tenant, including stopped ones.

    Raises:
        AgentError: Docker does not respond, or a container was removed meanwhile.
    """
    listing = ["docker", "ps", "--all", "--quiet", "--no-trunc"]
    ids = host.run([*listing, "--filter", f"label={container.LABEL_TENANT}"], QUICK).split()
    if not ids:
        return {}
    try:
        documents = json.loads(host.run(["docker", "container", "inspect", *ids], QUICK))
        return {parsed.tenant: parsed for parsed in map(_parse_container, documents)}
    except (ValueError, KeyError, TypeError) as error:
        raise AgentError(f"docker container inspect: {type(error).__name__}: {error}") from None


def start(host: Host, tenant: str, network: list[str], argv: list[str]) -> str:
    """Create a tenant's bridge and start its container; return the container id.

    Raises:
        AgentError: Docker failed, or the container got an anonymous volume on the host's disk and is removed.
    """
    host.run(network, QUICK)
    id_ = host.run(argv, SLOW).strip()
    kinds = ["docker", "inspect", "--format", "{{range .Mounts}}{{.Type}} {{end}}", container.name_of(tenant)]
    if "volume" in host.run(kinds, QUICK).split():
        remove(host, tenant, 0)
        raise AgentError("the container has a volume on the host's disk; use volumes that are bounded")
    return id_


def remove(host: Host, tenant: str, seconds: int) -> None:
    """Stop a tenant's container, with ``seconds`` between SIGTERM and SIGKILL; remove it and its bridge.

    A missing container or bridge is not an error.
    """
    name = container.name_of(tenant)
    if _ids(host, ["ps", "--all"], name):
        host.run(["docker", "stop", "--time", str(seconds), name], SLOW)
        host.run(["docker", "rm", "--force", "--volumes", name], SLOW)
    if _ids(host, ["network", "ls"], name):
        host.run(["docker", "network", "rm", name], SLOW)


def confine(host: Host, cpuset: str) -> None:
    """Bind Docker's daemons to CPUs that no tenant has, until the next boot.

    What a tenant prints is copied by them, outside of its control group: a flood of output would cost its
    neighbours CPU time. Source: systemd.resource-control(5), ``AllowedCPUs``.

    Raises:
        AgentError: systemd does not manage the daemons, or not by cgroup v2.
    """
    for service in _DAEMONS:
        host.run(["systemctl", "set-property", "--runtime", service, f"AllowedCPUs={cpuset}"], QUICK)


def _ids(host: Host, listing: list[str], name: str) -> list[str]:
    return host.run(["docker", *listing, "--quiet", "--filter", f"name=^/?{name}$"], QUICK).split()


def cpus(text: str) -> tuple[int, ...]:
    """Parse a CPU list in the kernel's format, such as ``0-3,48``."""
    ranges = [(int(low), int(high or low)) for low, high in _RANGE.findall(text)]
    return tuple(cpu for low, high in ranges for cpu in range(low, high + 1))


def _parse_container(document: dict[str, Any]) -> TenantContainer:
    labels, state, limits = document["Config"]["Labels"], document["State"], document["HostConfig"]
    part = _parse_slice(labels.get(container.LABEL_SLICE, ""), str(limits["CpusetCpus"]))
    bindings = [
        binding
        for port_bindings in (limits.get("PortBindings") or {}).values()
        for binding in port_bindings or ()
    ]
    return TenantContainer(
        id=document["Id"],
        tenant=labels[container.LABEL_TENANT],
        spec=labels.get(container.LABEL_SPEC, ""),
        part=part,
        is_running=state["Status"] == "running",
        shares=int(limits["CpuShares"]),
        cpuset=str(limits["CpusetCpus"]),
        quota=int(limits["CpuQuota"]) or -1,
        pid=int(state["Pid"]),
        started=str(state["StartedAt"]),
        uid=document["Config"]["User"].partition(":")[0],
        port=bindings[0]["HostPort"] if bindings else None,
    )


def _parse_slice(label: str, cpuset: str) -> Slice | None:
    """Parse the slice label, with the current CPUs: `docker update` changes them, but not the label."""
    try:
        return replace(codec.decode_slice(label), cpus=cpus(cpuset))
    except ConfigError:
        return None
