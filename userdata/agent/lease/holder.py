"""One instance's time with the lease: it stands by until it is free, keeps it alive, and gives it back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from userdata.agent.lease.store import LEASE_SECONDS, Lease, LeaseStore
from userdata.agent.machine import log
from userdata.agent.machine.clock import Clock
from userdata.agent.machine.errors import AgentError, LeaseLostError

WAIT_SECONDS: Final = 900.0
"""For a lease that another instance holds, until the unit starts again."""
_LOOK_EVERY: Final = 5.0
_RENEW_EVERY: Final = LEASE_SECONDS / 4


class Tenure:
    """Takes, keeps and gives back a lease.

    Args:
        attend: called every few seconds while it stands by; raises `UnwantedError` when nothing is to be
            begun here any more.
        token: of a lease that is held already; 0: of none.
    """

    def __init__(
        self,
        leases: LeaseStore,
        clock: Clock,
        attend: Callable[[], None] = lambda: None,
        wait_seconds: float = WAIT_SECONDS,
        token: int = 0,
    ) -> None:
        self._leases = leases
        self._clock = clock
        self._attend = attend
        self._wait_seconds = wait_seconds
        self._renewed = clock.monotonic()
        self.token = token
        """The lease's, under which everything is done; 0: none is held."""

    def take(self) -> Lease:
        """Stand by until the lease is ours.

        Raises:
            AgentError: another instance held it for ``wait_seconds``.
        """
        begun = self._clock.monotonic()
        self._attend()
        while (lease := self._leases.acquire()) is None:
            if self._clock.monotonic() - begun > self._wait_seconds:
                raise AgentError(f"gave up after {self._wait_seconds:.0f} s: another instance holds the job")
            self._clock.sleep(_LOOK_EVERY)
            self._attend()
        self.token, self._renewed = lease.token, self._clock.monotonic()
        log.info("lease acquired", token=lease.token, volume=lease.volume)
        return lease

    def take_at_once(self) -> bool:
        """Take the lease if it is free; tell whether it is ours now."""
        lease = self._leases.acquire()
        if lease is None:
            return False
        self.token, self._renewed = lease.token, self._clock.monotonic()
        return True

    def keep_alive(self) -> None:
        """Renew the lease when a quarter of it has passed; raises `LeaseLostError`."""
        if self._clock.monotonic() - self._renewed >= _RENEW_EVERY:
            self._leases.renew(self.token)
            self._renewed = self._clock.monotonic()

    def is_mine(self) -> bool:
        """Renew the lease; tell whether it is still ours."""
        try:
            self._leases.renew(self.token)
        except LeaseLostError as error:
            log.warning("lease lost before it was given back", error=str(error))
            return False
        return True

    def give_back(self) -> None:
        """Release the lease, once all that it guards is let go."""
        try:
            self._leases.release(self.token)
        except LeaseLostError:  # an answer was lost: what we repeated had been done
            log.info("the lease had been given back already", token=self.token)
