"""The tenants' data volumes on this host: attach, renew leases, release; independently of each other.

A tenant's volume is handled as a training job's (`model.volume_job`): its lease names the host, and the
volume migrates to it.
"""

from __future__ import annotations

import string
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from userdata.agent.lease.renewal import RENEW_INTERVAL_SECONDS
from userdata.agent.lease.store import DynamoLease
from userdata.agent.machine import files, log
from userdata.agent.machine.clock import Clock
from userdata.agent.machine.errors import AgentError, LeaseLostError
from userdata.agent.storage.volume.execute import MAX_ATTACHMENTS, Executor
from userdata.agent.storage.volume.model import HeldVolume

DEVICES: Final = tuple(f"/dev/xvd{a}{b}" for a in "bc" for b in string.ascii_lowercase)
"""Device names of tenants' volumes, distinct from those of jobs and datasets.

More than three times the number of tenants: each reserves `MAX_ATTACHMENTS`, a new agent process others than
that of a volume already attached. Source: EC2 user guide, "Device names for volumes".
"""


class NoDataset:
    """A `DatasetFiller` without a dataset: a tenant's volume starts empty."""

    def is_complete(self) -> bool:
        """See `DatasetFiller`."""
        return True

    def fill(self, keep_alive: Callable[[], None]) -> None:
        """See `DatasetFiller`."""


@dataclass(eq=False)
class TenantVolumes:
    """The volumes of this host's tenants.

    Args:
        create_executor: creates the executor of a tenant's volume, by tenant, size in GiB and device names.
        leases: returns a tenant's lease.
        attached_devices: returns the device names in use on this instance, from EC2.
        directory: where attached volumes are recorded for the next agent process of this boot.
    """

    create_executor: Callable[[str, int, tuple[str, ...]], Executor]
    leases: Callable[[str], DynamoLease]
    attached_devices: Callable[[], Collection[str]]
    directory: Path
    clock: Clock

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._devices: dict[str, tuple[str, ...]] = {}
        self._renewed: dict[str, float] = {}

    def attach(self, tenant: str, data_gib: int) -> str:
        """Attach, mount and grow a tenant's volume; one that is already mounted only grows.

        Returns why it has not grown to its size yet, empty if it has.

        Raises:
            AgentError: see `Executor.up`.
        """
        executor = self.create_executor(tenant, data_gib, self._devices_of(tenant))
        with self._lock:  # the executor renews the lease, whose new token is in no note yet
            self._renewed.pop(tenant, None)
        try:
            held_volume = executor.up()
        except AgentError:
            if (note := files.read_json(self._note(tenant))) is not None:
                files.write_json(self._note(tenant), {**note, "token": executor.token or note["token"]})
                with self._lock:  # due at once: a tenant that runs without its lease ends
                    self._renewed[tenant] = self.clock.monotonic() - RENEW_INTERVAL_SECONDS
            raise
        files.write_json(self._note(tenant), {"token": held_volume.token, "volume": held_volume.volume})
        with self._lock:
            self._renewed[tenant] = self.clock.monotonic()
        return executor.growth_error

    def release(self, tenant: str) -> None:
        """Detach the volume of a tenant whose container has ended, then release its lease.

        Raises:
            AgentError: the volume is in use or not detached in time; the lease then expires.
        """
        note = files.read_json(self._note(tenant))
        with self._lock:
            self._renewed.pop(tenant, None)
        if note is not None:
            held_volume = HeldVolume(int(note["token"]), str(note["volume"]))
            self.create_executor(tenant, 0, ()).down(held_volume)
            self._note(tenant).unlink(missing_ok=True)
        with self._lock:
            self._devices.pop(tenant, None)

    def tenants(self) -> frozenset[str]:
        """Return the tenants with an attached volume, by the records of this boot."""
        return frozenset(path.stem for path in (self.directory / "volumes").glob("*.json"))

    def renew_leases(self) -> frozenset[str]:
        """Renew the leases that are due; return the tenants whose lease another host has acquired."""
        lost = set()
        with self._lock:
            leases = sorted(self._renewed.items())
        for tenant, renewed in leases:
            if self.clock.monotonic() - renewed < RENEW_INTERVAL_SECONDS:
                continue
            note = files.read_json(self._note(tenant))
            if note is None:
                continue
            try:
                self.leases(tenant).renew(int(note["token"]))
            except LeaseLostError as error:
                if self._renewed.get(tenant) == renewed:  # else `attach` or `release` took it meanwhile
                    log.error("tenant volume lease lost", tenant=tenant, error=str(error))
                    lost.add(tenant)
            except AgentError as error:
                # The attached volume excludes other hosts; retried at the next poll.
                log.warning("lease not renewed", tenant=tenant, error=str(error))
            else:
                with self._lock:
                    if self._renewed.get(tenant) == renewed:
                        self._renewed[tenant] = self.clock.monotonic()
        return frozenset(lost)

    def _devices_of(self, tenant: str) -> tuple[str, ...]:
        with self._lock:
            if tenant not in self._devices:
                in_use = {*self.attached_devices()}.union(*self._devices.values())
                free = tuple(name for name in DEVICES if name not in in_use)
                if not free:
                    raise AgentError(
                        f"tenant {tenant}: no device name is free; attach at most {len(DEVICES)} volumes"
                    )
                self._devices[tenant] = free[:MAX_ATTACHMENTS]
            return self._devices[tenant]

    def _note(self, tenant: str) -> Path:
        return self.directory / "volumes" / f"{tenant}.json"
