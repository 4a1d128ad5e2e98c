"""In-memory Docker and nftables: the commands of the tenant supervisor, with Docker's errors."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from userdata.agent.machine.errors import AgentError
from userdata.agent.machine.host import Argv, Variables
from userdata.agent.tenants.host.container import LABEL_TENANT

_VERSIONS: Final = {
    "runc": "runc version 1.4.4",
    "containerd": "containerd github.com/containerd/containerd/v2 v2.2.5 fa5f1",
    "nvidia-ctk": "NVIDIA Container Toolkit CLI version 1.20.0",
    "nvidia-smi": "580.178.04",
}
_NO_START: Final = "0001-01-01T00:00:00Z"


class Containers:
    """Containers and networks by name; a start fails for an image in ``refuses``.

    ``changed`` is called with each container that has started or ended.
    """

    def __init__(self, changed: Callable[[dict[str, Any]], None] = lambda container: None) -> None:
        super().__init__()
        self._changed = changed
        self.containers: dict[str, dict[str, Any]] = {}
        self.networks: set[str] = set()
        self.rules = ""
        self.refuses: set[str] = set()
        self.mount_kinds: list[str] = []
        self.is_down = False
        self._pid = 1000

    def run(self, argv: Argv, timeout: float = 60, stdin: str = "", environment: Variables = None) -> str:
        """Run a command; raise ``AssertionError`` for an unknown one."""
        match list(argv):
            case ["nft", "list", *_]:
                if not self.rules:
                    raise AgentError("nft: exit 1: Error: No such file or directory")
            case ["nft", *_]:
                self.rules = stdin
            case ["docker", *_] if self.is_down:
                raise AgentError("docker: exit 1: Cannot connect to the Docker daemon")
            case ["docker", "ps", *_]:
                return "\n".join(self._matching(argv, self.containers))
            case [program, *_] if program in _VERSIONS:
                return _VERSIONS[program]
            case ["docker", "version", *_]:
                return "29.9.0"
            case ["docker", "image", "inspect", *_]:
                return "null"  # present, and without volumes
            case ["docker", "inspect", "--format", *_]:
                return " ".join(self.mount_kinds)
            case ["docker", "container", "inspect", *ids]:
                return json.dumps(
                    [container for container in self.containers.values() if container["Id"] in ids]
                )
            case ["docker", "run", *_]:
                return self._run(list(argv))
            case ["docker", "update", *_]:
                self._limit(self.containers[argv[-1]], argv)
            case ["docker", "stop", *_]:
                self.die(argv[-1])
            case ["docker", "rm", *_]:
                del self.containers[argv[-1]]
            case ["docker", "network", "ls", *_]:
                return "\n".join(self._matching(argv, self.networks))
            case ["docker", "network", "create", *_]:
                if argv[-1] in self.networks:
                    raise AgentError(f"docker: exit 1: network with name {argv[-1]} already exists")
                self.networks.add(argv[-1])
            case ["docker", "network", "rm", *_]:
                if argv[-1] in self.containers:
                    raise AgentError(f"docker: exit 1: network {argv[-1]} has active endpoints")
                self.networks.remove(argv[-1])
            case ["install" | "chown" | "rm" | "systemctl", *_] | ["docker", "pull" | "login", *_]:
                pass
            case _:
                raise AssertionError(argv)
        return ""

    def die(self, name: str) -> None:
        """End a container as if its command failed."""
        was_running = is_running(self.containers[name])
        self.containers[name]["State"] |= {"Status": "exited", "Pid": 0}
        if was_running:
            self._changed(self.containers[name])

    def pids(self) -> dict[str, int]:
        """Return the PIDs of running tenants."""
        alive = [container for container in self.containers.values() if is_running(container)]
        return {tenant_of(running): running["State"]["Pid"] for running in alive}

    def _matching(self, argv: Sequence[str], names: Iterable[str]) -> list[str]:
        [condition] = options(argv, "--filter")
        if condition.startswith("label="):
            return [self.containers[name]["Id"] for name in names]
        return [name for name in names if condition == f"name=^/?{name}$"]

    def _run(self, argv: list[str]) -> str:
        [name], [network] = options(argv, "--name"), options(argv, "--network")
        if network not in self.networks:
            raise AgentError(f"docker: exit 125: network {network} not found")
        if name in self.containers:
            raise AgentError(f"docker: exit 125: the container name {name} is already in use")
        self._pid += 1
        bound = [option.split(":") for option in options(argv, "--publish")]
        new_container: dict[str, Any] = {
            "Id": f"{self._pid:064x}",
            "Config": {
                "Labels": dict(option.split("=", 1) for option in options(argv, "--label")),
                "User": options(argv, "--user")[0],
            },
            "HostConfig": {"PortBindings": {binding[2]: [{"HostPort": binding[1]}] for binding in bound}},
            "State": {"Status": "created", "Pid": 0, "StartedAt": _NO_START},
        }
        self._limit(new_container, argv)
        self.containers[name] = new_container
        ports = new_container["HostConfig"]["PortBindings"]
        running = [
            container
            for container in self.containers.values()
            if container is not new_container and is_running(container)
        ]
        if ports and any(binding["HostConfig"]["PortBindings"] == ports for binding in running):
            raise AgentError("docker: exit 125: port is already allocated")
        if any(image in argv for image in self.refuses):
            raise AgentError("docker: exit 125: no such image")
        new_container["State"] = {"Status": "running", "Pid": self._pid, "StartedAt": "2026-11-22T10:00:00Z"}
        self._changed(new_container)
        return str(new_container["Id"]) + "\n"

    @staticmethod
    def _limit(container: dict[str, Any], argv: Sequence[str]) -> None:
        container["HostConfig"]["CpuShares"] = int(options(argv, "--cpu-shares")[0])
        container["HostConfig"]["CpusetCpus"] = options(argv, "--cpuset-cpus")[0]
        container["HostConfig"]["CpuQuota"] = int(options(argv, "--cpu-quota")[0])


def options(argv: Sequence[str], name: str) -> list[str]:
    """Return the values of an option that may be given several times."""
    return [argv[at + 1] for at, part in enumerate(argv) if part == name]


def is_running(container: Mapping[str, Any]) -> bool:
    """Return whether a container runs."""
    return bool(container["State"]["Status"] == "running")


def tenant_of(container: Mapping[str, Any]) -> str:
    """Return the tenant of a container."""
    return str(container["Config"]["Labels"][LABEL_TENANT])
