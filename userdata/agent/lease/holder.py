"""One instance's time with the lease: it stands by until it is free, keeps it alive, and gives it back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from userdata.agent.lease.store import LEASE_SECONDS, DynamoLease, Lease
from userdata.agent.machine import log
from userdata.agent.machine.clock import Clock
from userdata.agent.machine.errors import AgentError, LeaseLostError

WAIT_SECONDS: Final = 900.0
"""For a lease that another instance holds, until the unit starts again."""
_LOOK_EVERY: Final = 5.0
_RENEW_EVERY: Final = LEASE_SECONDS / 4


@dataclass(eq=False)
class Tenure:
    """Takes, keeps and gives back a lease.

    Args:
        attend: called every few seconds while it stands by; raises `UnwantedError` when nothing is to be
            begun here any more.
        token: the lease's, under which everything is done; 0: none is held.
    """

    leases: DynamoLease
    clock: Clock
    attend: Callable[[], None] = lambda: None
    wait_seconds: float = WAIT_SECONDS
    token: int = 0

    def __post_init__(self) -> None:
        self._renewed = self.clock.monotonic()

    def take(self) -> Lease:
        """Stand by until the lease is ours.

        Raises:
            AgentError: another instance held it for ``wait_seconds``.
        """
        begun = self.clock.monotonic()
        self.attend()
        while (lease := self.leases.acquire()) is None:
            if self.clock.monotonic() - begun > self.wait_seconds:
                raise AgentError(f"gave up after {self.wait_seconds:.0f} s: another instance holds the job")
            self.clock.sleep(_LOOK_EVERY)
            self.attend()
        self.token, self._renewed = lease.token, self.clock.monotonic()
        log.info("lease acquired", token=lease.token, volume=lease.volume)
        return lease

    def take_at_once(self) -> bool:
        """Take the lease if it is free; tell whether it is ours now."""
        lease = self.leases.acquire()
        if lease is None:
            return False
        self.token, self._renewed = lease.token, self.clock.monotonic()
        return True

    def keep_alive(self) -> None:
        """Renew the lease when a quarter of it has passed; raises `LeaseLostError`."""
        if self.clock.monotonic() - self._renewed >= _RENEW_EVERY:
            self.leases.renew(self.token)
            self._renewed = self.clock.monotonic()

    def is_mine(self) -> bool:
        """Renew the lease; tell whether it is still ours."""
        try:
            self.leases.renew(self.token)
        except LeaseLostError as error:
            log.warning("lease lost before it was given back", error=str(error))
            return False
        return True

    def give_back(self) -> None:
        """Release the lease, once all that it guards is let go."""
        try:
            self.leases.release(self.token)
        except LeaseLostError:  # an answer was lost: what we repeated had been done
            log.info("the lease had been given back already", token=self.token)
