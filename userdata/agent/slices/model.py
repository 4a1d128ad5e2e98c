"""Tenants as they are declared, the machine as it is found, and the share of it that a tenant gets."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from userdata.agent.containers import IMAGE
from userdata.agent.names import DATA_DIR

DEALT_PORTS: Final = range(20_000, 21_000)
"""Of the machine, for tenants that name none; the kernel's own begin at 32768."""

_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?")
_PATH: Final = re.compile(r"(/[A-Za-z0-9_][A-Za-z0-9_.-]*)+")


@dataclass(frozen=True)
class TenantVolume:
    """A folder of the machine in a tenant's container. A folder that is missing is made, unless read-only."""

    host_path: str
    container_path: str
    read_only: bool = False

    def __post_init__(self) -> None:
        """Check both paths."""
        if not _PATH.fullmatch(self.host_path) or not self.host_path.startswith(f"{DATA_DIR}/"):
            raise ValueError(f"hostPath: {self.host_path!r}; allowed: a plain path below {DATA_DIR}")
        if not _PATH.fullmatch(self.container_path):
            raise ValueError(f"containerPath: {self.container_path!r}; allowed: a plain absolute path")


@dataclass(frozen=True)
class Tenant:
    """What one tenant runs and what is his: whole GPUs and CPUs, and memory without swap."""

    name: str
    image: str
    user: int
    """The numeric user and group id that the container runs as and that owns its folders."""
    cpus: int
    memory_gib: int
    gpus: int = 0
    port: int = 0
    """Where the container listens (TCP); 0: it does not."""
    host_port: int = 0
    """Where the machine listens for it; 0: the lowest of `DEALT_PORTS` that is free."""
    command: tuple[str, ...] = ()
    environment: tuple[str, ...] = ()
    volumes: tuple[TenantVolume, ...] = ()
    pids: int = 4096
    """How many processes and threads it may have."""

    def __post_init__(self) -> None:
        """Check what becomes names, arguments and limits."""
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"name: {self.name!r}; allowed: lower-case letters, digits and '-', 32 at most")
        if not IMAGE.fullmatch(self.image):
            raise ValueError(f"image: {self.image!r}; allowed: repository@sha256:… (a tag can be moved)")
        for key, value, least, most in (
            ("user", self.user, 1000, 2**31 - 1),  # below are the system's own
            ("cpus", self.cpus, 1, 1024),
            ("memoryGib", self.memory_gib, 1, 65_536),
            ("gpus", self.gpus, 0, 64),
            ("port", self.port, 0, 65_535),
            ("hostPort", self.host_port, 0, 65_535),
            ("pids", self.pids, 16, 4_194_304),  # the kernel's limit
        ):
            if not least <= value <= most:
                raise ValueError(f"{key}: {value}; allowed: {least} to {most}")
        if self.host_port and not self.port:
            raise ValueError(f"hostPort: {self.host_port} without a port; allowed: with the container's port")
        if 0 < self.host_port < 1024 or self.host_port in DEALT_PORTS:
            raise ValueError(
                f"hostPort: {self.host_port}; allowed: 1024 to 65535, but those that are dealt out "
                f"({DEALT_PORTS[0]} to {DEALT_PORTS[-1]}), or 0"
            )
        if bad := [e for e in self.environment if not re.fullmatch(r"[A-Za-z_]\w*=[^\n]*", e)]:
            raise ValueError(f"environment: {bad[0]!r}; allowed: NAME=value on one line")
        inside = [volume.container_path for volume in self.volumes]
        if len(set(inside)) < len(inside):
            raise ValueError(f"volumes: two at one containerPath of {sorted(inside)}; allowed: one at each")


@dataclass(frozen=True)
class Slices:
    """All tenants of a machine, and what the machine keeps for itself."""

    tenants: tuple[Tenant, ...]
    reserved_cpus: int = 2
    reserved_memory_gib: int = 4

    def __post_init__(self) -> None:
        """Check what tenants must not share."""
        of_each: dict[str, list[object]] = {
            "name": [tenant.name for tenant in self.tenants],
            "user": [tenant.user for tenant in self.tenants],
            "hostPort": [tenant.host_port for tenant in self.tenants if tenant.host_port],
        }
        for key, values in of_each.items():
            if twice := [value for value in values if values.count(value) > 1]:
                raise ValueError(f"tenants: {key} {twice[0]!r} is given twice; allowed: one for each tenant")
        if self.reserved_cpus < 0 or self.reserved_memory_gib < 0:
            raise ValueError("reservedCpus and reservedMemoryGib; allowed: 0 or more")
        # In his own folder a tenant could put a link in the place of another that is to be mounted.
        owned = list(self._folders())
        for number, (name, path, read_only) in enumerate(owned):
            for other, other_path, other_read_only in owned[:number]:
                nested = f"{path}/".startswith(f"{other_path}/") or f"{other_path}/".startswith(f"{path}/")
                if nested and not (read_only and other_read_only):
                    raise ValueError(
                        f"tenants: {path} of {name} and {other_path} of {other} are in one place; "
                        "allowed: places side by side, or both readOnly"
                    )

    def _folders(self) -> Iterator[tuple[str, str, bool]]:
        for tenant in self.tenants:
            for volume in tenant.volumes:
                yield tenant.name, volume.host_path, volume.read_only


@dataclass(frozen=True)
class Machine:
    """What there is to deal out: GPUs by UUID, CPUs by number, those of one core side by side."""

    gpus: tuple[str, ...]
    cpus: tuple[int, ...]
    memory_gib: int


@dataclass(frozen=True)
class Share:
    """What one tenant has of the machine; ``port`` is the machine's, 0 without."""

    gpus: tuple[str, ...] = ()
    cpus: tuple[int, ...] = ()
    memory_gib: int = 0
    port: int = 0
