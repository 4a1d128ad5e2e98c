"""Docker as the landlord needs it: what runs of the tenants, and one command for each change."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any, Final

from userdata.agent.machine.errors import AgentError, ConfigError
from userdata.agent.machine.host import Host
from userdata.agent.tenants import codec
from userdata.agent.tenants.host import container, steps
from userdata.agent.tenants.host.steps import Found
from userdata.agent.tenants.model import Slice

_RANGE: Final = re.compile(r"(\d+)(?:-(\d+))?")


def found(host: Host) -> dict[str, Found]:
    """Return the tenants' containers by tenant, dead ones, too.

    Raises:
        AgentError: Docker does not answer, or a container went while it was asked.
    """
    listing = ["docker", "ps", "--all", "--quiet", "--no-trunc"]
    ids = host.run([*listing, "--filter", f"label={container.LABEL_TENANT}"]).split()
    if not ids:
        return {}
    try:
        documents = json.loads(host.run(["docker", "container", "inspect", *ids]))
        return {one.tenant: one for one in map(_found, documents)}
    except (ValueError, KeyError, TypeError) as error:
        raise AgentError(f"docker container inspect: {type(error).__name__}: {error}") from None


def start(host: Host, network: list[str], argv: list[str]) -> str:
    """Make a tenant's bridge and start its container; return the container's id."""
    host.run(network)
    return host.run(argv).strip()


def end(host: Host, tenant: str, seconds: int) -> None:
    """Let a tenant's container end within ``seconds`` of SIGTERM, and remove it with its bridge.

    What is not there is no error.
    """
    name = container.name_of(tenant)
    if _ids(host, ["ps", "--all"], name):
        host.run(["docker", "stop", "--time", str(seconds), name])
        host.run(["docker", "rm", "--force", "--volumes", name])
    if _ids(host, ["network", "ls"], name):
        host.run(["docker", "network", "rm", name])


def stop(host: Host, tenant: str, seconds: int) -> None:
    """Let a tenant's container end within ``seconds`` of SIGTERM, and leave it."""
    host.run(["docker", "stop", "--time", str(seconds), container.name_of(tenant)])


def _ids(host: Host, listing: list[str], name: str) -> list[str]:
    return host.run(["docker", *listing, "--quiet", "--filter", f"name=^/?{name}$"]).split()


def cpus(text: str) -> tuple[int, ...]:
    """Return the CPUs that ``text`` names as the kernel writes them: ``0-3,48``."""
    ranges = [(int(low), int(high or low)) for low, high in _RANGE.findall(text)]
    return tuple(cpu for low, high in ranges for cpu in range(low, high + 1))


def _found(document: dict[str, Any]) -> Found:
    labels, state, limits = document["Config"]["Labels"], document["State"], document["HostConfig"]
    part = _part(labels.get(container.LABEL_SLICE, ""), str(limits["CpusetCpus"]))
    bound = [one for many in (limits.get("PortBindings") or {}).values() for one in many or ()]
    port = bound[0]["HostPort"] if bound else None
    return Found(
        id=document["Id"],
        tenant=labels[container.LABEL_TENANT],
        spec=labels.get(container.LABEL_SPEC, ""),
        part=part,
        is_running=state["Status"] == "running",
        shares=int(limits["CpuShares"]),
        cpuset=str(limits["CpusetCpus"]),
        pid=int(state["Pid"]),
        started=str(state["StartedAt"]),
        pieces=steps.pieces(part, document["Config"]["User"].partition(":")[0], port),
    )


def _part(label: str, cpuset: str) -> Slice | None:
    """Read the label; its CPUs may have been changed since, and a label cannot."""
    try:
        return replace(codec.decode_slice(label), cpus=cpus(cpuset))
    except ConfigError:
        return None
