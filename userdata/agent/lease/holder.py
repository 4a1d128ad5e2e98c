"""Acquire, renew and release the job lease."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from userdata.agent.lease.store import LEASE_SECONDS, DynamoLease, Lease
from userdata.agent.machine import log
from userdata.agent.machine.clock import Clock
from userdata.agent.machine.errors import LeaseHeldError, LeaseLostError

WAIT_SECONDS: Final = 900.0
"""Timeout for a lease that another instance holds; systemd then restarts the unit."""
_POLL_INTERVAL_SECONDS: Final = 5.0
_RENEW_INTERVAL_SECONDS: Final = LEASE_SECONDS / 4


@dataclass(eq=False)
class LeaseHolder:
    """Acquires, renews and releases a lease.

    Args:
        on_poll: called every few seconds while waiting; raises `WorkCancelledError` to cancel.
        token: the fencing token of the lease; 0: no lease.
    """

    leases: DynamoLease
    clock: Clock
    on_poll: Callable[[], None] = lambda: None
    wait_seconds: float = WAIT_SECONDS
    token: int = 0

    def __post_init__(self) -> None:
        self._renewed = self.clock.monotonic()

    def acquire(self) -> Lease:
        """Wait until the lease is acquired.

        Raises:
            LeaseHeldError: another instance held it for ``wait_seconds``.
        """
        started = self.clock.monotonic()
        self.on_poll()
        while (lease := self.leases.acquire()) is None:
            if self.clock.monotonic() - started > self.wait_seconds:
                raise LeaseHeldError(
                    f"timed out after {self.wait_seconds:.0f} s: another instance holds the lease"
                )
            self.clock.sleep(_POLL_INTERVAL_SECONDS)
            self.on_poll()
        self.token, self._renewed = lease.token, self.clock.monotonic()
        log.info("lease acquired", token=lease.token, volume=lease.volume)
        return lease

    def try_acquire(self) -> bool:
        """Acquire the lease if it is free; return whether it was acquired."""
        lease = self.leases.acquire()
        if lease is None:
            return False
        self.token, self._renewed = lease.token, self.clock.monotonic()
        return True

    def renew_if_due(self) -> None:
        """Renew the lease after a quarter of its duration; raises `LeaseLostError`."""
        if self.clock.monotonic() - self._renewed >= _RENEW_INTERVAL_SECONDS:
            self.leases.renew(self.token)
            self._renewed = self.clock.monotonic()

    def try_renew(self) -> bool:
        """Renew the lease; return whether this instance still holds it."""
        try:
            self.leases.renew(self.token)
        except LeaseLostError as error:
            log.warning("lease lost before release", error=str(error))
            return False
        return True

    def release(self) -> None:
        """Release the lease, after everything that it guards."""
        try:
            self.leases.release(self.token)
        except LeaseLostError:  # a retry of a request that had succeeded
            log.info("lease already released", token=self.token)
