"""One tenant's way into the host and out of it: volume, image, walls, container; each may take minutes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from userdata.agent.machine import files, log
from userdata.agent.machine.errors import AgentError
from userdata.agent.machine.host import Host
from userdata.agent.tenants.host import container, docker
from userdata.agent.tenants.host import firewall as walls
from userdata.agent.tenants.host.container import HostPlace
from userdata.agent.tenants.host.steps import Found, WantedTenant
from userdata.agent.tenants.host.volumes import Volumes

_END_SECONDS: Final = 30
"""What a container that is replaced, or no longer wanted, has between SIGTERM and SIGKILL."""


@dataclass(eq=False)
class Tenancies:
    """What is done for one tenant; nothing in it waits for another. Raises `AgentError` where it fails.

    Args:
        pull: brings an image here.
        users: returns the ids of all tenants' users, for the walls.
        is_over: tells whether nothing is to be begun any more.
    """

    host: Host
    place: HostPlace
    homes: Volumes
    pull: Callable[[str], None]
    users: Callable[[], Iterable[int]]
    is_over: Callable[[], bool]

    def move_in(self, wanted: WantedTenant, argv: list[str], old: Found | None) -> None:
        """Start a tenant's container, in the place of ``old``, which ends only once all else is there."""
        tenant = wanted.tenant
        self.homes.bring(tenant.name, tenant.data_gib)
        self.pull(tenant.image)
        self._furnish(wanted)
        if self.is_over():
            raise AgentError("nothing is started any more")
        docker.end(self.host, tenant.name, _END_SECONDS)
        walls.build(self.host, self.users())
        made = docker.start(self.host, container.network_command(tenant), argv)
        record = self.place.record(tenant.name)
        files.write_atomic(record.with_suffix(".cid"), made)
        files.write_json(record, {"slot": tenant.name})
        log.info(
            "tenant started",
            tenant=tenant.name,
            gpus=wanted.part.gpus,
            cpus=wanted.part.cpuset,
            port=tenant.host_port,
            replaced=old is not None,
        )

    def grow(self, wanted: WantedTenant) -> None:
        """Bring a tenant's volume to its size, or learn after a restart of ours what is held."""
        self.homes.bring(wanted.tenant.name, wanted.tenant.data_gib)

    def move_out(self, tenant: str, seconds: int = _END_SECONDS) -> None:
        """End a tenant's container, which has ``seconds`` after SIGTERM, and give its volume back."""
        docker.end(self.host, tenant, seconds)
        self.homes.give_back(tenant)
        for path in (self.place.environment(tenant), self.place.record(tenant)):
            path.unlink(missing_ok=True)
        self.place.record(tenant).with_suffix(".cid").unlink(missing_ok=True)
        log.info("tenant gone", tenant=tenant)

    def _furnish(self, wanted: WantedTenant) -> None:
        """Make what a container sees of the host, each tenant's own."""
        tenant, home = wanted.tenant, self.place.home(wanted.tenant.name)
        user = f"{tenant.uid}:{tenant.uid}"
        for folder in (home / "data", home / "log"):
            if _owner(folder) not in (None, tenant.uid):
                self.host.run(["chown", "--recursive", "--no-dereference", user, str(folder)])
            owner = [f"--owner={tenant.uid}", f"--group={tenant.uid}", "--mode=0700"]
            self.host.run(["install", "--directory", *owner, str(folder)])
        self.place.told(tenant.name).mkdir(parents=True, exist_ok=True)
        told = container.environment(tenant)
        text = "".join(f"{key}={value}\n" for key, value in told.items())
        files.write_atomic(self.place.environment(tenant.name), text, 0o600)


def _owner(path: Path) -> int | None:
    try:
        return path.stat(follow_symlinks=False).st_uid
    except OSError:
        return None
