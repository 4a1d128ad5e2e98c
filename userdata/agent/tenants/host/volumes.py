"""Each tenant's data volume on this host: brought here, kept, given back; one does not wait for another.

A tenant's volume is that of a job (`model.volume_job`): its lease says which host has it, and it follows as a
training job's does.
"""

from __future__ import annotations

import string
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from userdata.agent.lease.renewal import RENEW_EVERY
from userdata.agent.lease.store import DynamoLease
from userdata.agent.machine import files, log
from userdata.agent.machine.clock import Clock
from userdata.agent.machine.errors import AgentError, LeaseLostError
from userdata.agent.storage.volume.execute import Executor
from userdata.agent.storage.volume.model import HeldVolume

DEVICES: Final = tuple(f"/dev/xvd{a}{b}" for a in "bc" for b in string.ascii_lowercase)
"""Apart from those of jobs and datasets (EC2 user guide, "Device names for volumes").

More than twice as many as tenants: a new process sets one aside for a volume that has one already.
"""


class Empty:
    """What a tenant's volume is filled with: nothing."""

    def filled(self) -> bool:
        """See `Filler`."""
        return True

    def fill(self, keep_alive: Callable[[], None]) -> None:
        """See `Filler`."""


@dataclass(eq=False)
class Volumes:
    """The volumes of this host's tenants.

    Args:
        make: what moves one volume, by tenant, size in GiB, and the device name for an attachment.
        leases: one tenant's lease.
        taken: returns the device names that are taken on this instance, asked of EC2.
        directory: where is noted what is held, for the next process of this boot.
    """

    make: Callable[[str, int, str], Executor]
    leases: Callable[[str], DynamoLease]
    taken: Callable[[], Collection[str]]
    directory: Path
    clock: Clock

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._devices: dict[str, str] = {}
        self._renewed: dict[str, float] = {}

    def bring(self, tenant: str, data_gib: int) -> None:
        """Bring a tenant's volume here, mounted and as large as it is to be; one that is here only grows.

        Raises:
            AgentError: see `Executor.up`.
        """
        held = self.make(tenant, data_gib, self._device(tenant)).up()
        files.write_json(self._note(tenant), {"token": held.token, "volume": held.volume})
        with self._lock:
            self._renewed[tenant] = self.clock.monotonic()

    def give_back(self, tenant: str) -> None:
        """Let go of a tenant's volume, whose container has ended, and then of its lease.

        Raises:
            AgentError: it is in use, or not free in time; the lease runs out by itself.
        """
        note = files.read_json(self._note(tenant))
        with self._lock:
            self._renewed.pop(tenant, None)
        if note is not None:
            held = HeldVolume(int(note["token"]), str(note["volume"]))
            self.make(tenant, 0, "").down(held)
            self._note(tenant).unlink(missing_ok=True)
        with self._lock:
            self._devices.pop(tenant, None)

    def held(self) -> frozenset[str]:
        """Return the tenants whose volumes are here, by the notes of this boot."""
        return frozenset(path.stem for path in (self.directory / "volumes").glob("*.json"))

    def keep(self) -> frozenset[str]:
        """Renew what is due; return the tenants whose lease another host has taken."""
        lost = set()
        for tenant, renewed in sorted(self._renewed.items()):
            if self.clock.monotonic() - renewed < RENEW_EVERY:
                continue
            note = files.read_json(self._note(tenant))
            if note is None:
                continue
            try:
                self.leases(tenant).renew(int(note["token"]))
            except LeaseLostError as error:
                log.error("a tenant's volume is another host's", tenant=tenant, error=str(error))
                lost.add(tenant)
            except AgentError as error:
                # The attached volume keeps others out: the next look tries again.
                log.warning("lease not renewed", tenant=tenant, error=str(error))
            else:
                with self._lock:
                    if tenant in self._renewed:
                        self._renewed[tenant] = self.clock.monotonic()
        return frozenset(lost)

    def _device(self, tenant: str) -> str:
        with self._lock:
            if tenant not in self._devices:
                taken = {*self.taken(), *self._devices.values()}
                free = [name for name in DEVICES if name not in taken]
                if not free:
                    raise AgentError(
                        f"tenant {tenant}: no device name is free, allowed: {len(DEVICES)} volumes"
                    )
                self._devices[tenant] = free[0]
            return self._devices[tenant]

    def _note(self, tenant: str) -> Path:
        return self.directory / "volumes" / f"{tenant}.json"
