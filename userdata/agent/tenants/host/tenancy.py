"""Start and removal of one tenant: volume, image, firewall, container; each may take minutes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from userdata.agent.machine import files, log
from userdata.agent.machine.errors import AgentError
from userdata.agent.machine.host import QUICK, SLOW, Host
from userdata.agent.tenants.host import container, docker, firewall
from userdata.agent.tenants.host.container import TenantPaths
from userdata.agent.tenants.host.steps import DesiredTenant, TenantContainer
from userdata.agent.tenants.host.volumes import TenantVolumes
from userdata.agent.tenants.model import Slice, Tenant

_IMAGES_DIR: Final = Path("/var/lib/docker")
_STOP_TIMEOUT_SECONDS: Final = 30
"""Seconds between SIGTERM and SIGKILL for a replaced or removed container."""


@dataclass(eq=False)
class TenantLifecycle:
    """Starts, grows and removes single tenants. Methods raise `AgentError`.

    Args:
        prepare_image: pulls a tenant's image, and returns its declared volumes.
        secret_variables: returns the environment variables in a tenant's secret.
        prepare_gpus: returns the UUIDs of a slice's GPUs; creates a MIG instance.
        network_rates: returns the network bounds of all tenants by user id, for the firewall.
        disk_of: returns the disk with a directory.
        is_stopping: returns whether no tenant may be started any more.
    """

    host: Host
    paths: TenantPaths
    volumes: TenantVolumes
    prepare_image: Callable[[Tenant], Sequence[str]]
    secret_variables: Callable[[Tenant], Mapping[str, str]]
    prepare_gpus: Callable[[Slice], Sequence[str]]
    network_rates: Callable[[], Mapping[int, int]]
    disk_of: Callable[[Path], str]
    is_stopping: Callable[[], bool]

    def start(self, desired: DesiredTenant, previous: TenantContainer | None) -> str:
        """Start a tenant's container; ``previous`` stops only when volume, image and secret are ready.

        Returns why the volume has not its size yet, as `TenantVolumes.attach` does.
        No container of the tenant runs while its directories change their owner, and none of another tenant
        has its GPUs, user or port: see `steps.reconcile`.
        """
        tenant = desired.tenant
        growth_error = self.volumes.attach(tenant.name, tenant.data_gib)
        image_volumes = self.prepare_image(tenant)
        secret_variables = self.secret_variables(tenant)
        if self.is_stopping():
            raise AgentError("the instance is being terminated: no tenant is started")
        docker.remove(self.host, tenant.name, _STOP_TIMEOUT_SECONDS)
        gpus = self.prepare_gpus(desired.part)
        self._prepare_directories(tenant, gpus, image_volumes)
        variables = container.environment(tenant, gpus, secret_variables)
        text = "".join(f"{key}={value}\n" for key, value in variables.items())
        files.write_atomic(self.paths.environment_file(tenant.name), text, 0o600)
        firewall.apply_rules(self.host, self.network_rates())
        disks = container.TenantDisks(
            self.disk_of(self.paths.volume_path(tenant.name)), self.disk_of(_IMAGES_DIR)
        )
        argv = container.run_command(desired, gpus, self.paths, disks, image_volumes)
        container_id = docker.start(self.host, tenant.name, container.network_command(tenant), argv)
        record = self.paths.record_file(tenant.name)
        files.write_atomic(record.with_suffix(".cid"), container_id)
        files.write_json(record, {"slot": tenant.name})
        log.info(
            "tenant started",
            tenant=tenant.name,
            gpus=desired.part.gpus,
            cpus=desired.part.cpuset,
            port=tenant.host_port,
            replaced=previous is not None,
        )
        return growth_error

    def grow(self, desired: DesiredTenant) -> str:
        """Grow a tenant's volume, see `TenantVolumes.attach`; after a restart also record its lease."""
        return self.volumes.attach(desired.tenant.name, desired.tenant.data_gib)

    def clear(self, tenant: str) -> None:
        """Stop and remove a tenant's container, which blocks another tenant; its volume stays."""
        docker.remove(self.host, tenant, _STOP_TIMEOUT_SECONDS)
        log.info("tenant container removed: another tenant needs what it used", tenant=tenant)

    def remove(self, tenant: str, seconds: int = _STOP_TIMEOUT_SECONDS) -> None:
        """Stop a tenant's container, ``seconds`` after SIGTERM at the latest, and release its volume."""
        docker.remove(self.host, tenant, seconds)
        self.volumes.release(tenant)
        record = self.paths.record_file(tenant)
        files_of = (self.paths.environment_file(tenant), self.paths.cdi_file(tenant), record)
        for path in (*files_of, record.with_suffix(".cid")):
            path.unlink(missing_ok=True)
        log.info("tenant removed", tenant=tenant)

    def _prepare_directories(self, tenant: Tenant, gpus: Sequence[str], image_volumes: Sequence[str]) -> None:
        """Create the host directories and the CDI specification of a tenant's container.

        ``/tmp`` and its image's volumes outside of ``/data`` and ``/log``, which no process uses now, become
        empty: ``rm`` follows no symbolic link and leaves no file system, whatever the tenant put there; the
        names of its directories belong to root.
        """
        volume_path = self.paths.volume_path(tenant.name)
        user = f"{tenant.uid}:{tenant.uid}"
        # Only root may enter the volume: what is in `/tmp` is readable by all users.
        self.host.run(["install", "--directory", "--mode=0700", str(volume_path)], QUICK)
        temporary = str(self.paths.temporary_directory(tenant.name))
        emptied = [temporary, str(self.paths.image_volumes(tenant.name))]
        self.host.run(["rm", "--recursive", "--force", "--one-file-system", *emptied], SLOW)
        self.host.run(["install", "--directory", "--mode=1777", temporary], QUICK)
        declared = [self.paths.image_volume(tenant.name, path) for path in image_volumes]
        for directory in (volume_path / "data", volume_path / "log", *declared):
            if _owner(directory) not in (None, tenant.uid):
                self.host.run(["chown", "--recursive", "--no-dereference", user, str(directory)], SLOW)
            owner = [f"--owner={tenant.uid}", f"--group={tenant.uid}", "--mode=0700"]
            self.host.run(["install", "--directory", *owner, str(directory)], QUICK)
        self.paths.notice_directory(tenant.name).mkdir(parents=True, exist_ok=True)
        if gpus:
            specification = container.cdi_specification(tenant.name, gpus)
            files.write_json(self.paths.cdi_file(tenant.name), specification)


def _owner(path: Path) -> int | None:
    try:
        return path.stat(follow_symlinks=False).st_uid
    except OSError:
        return None
