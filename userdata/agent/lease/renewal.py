"""Renewal of the job lease, and the times at which work without a renewed lease stops.

Every instance that mounts EFS can write its checkpoints: a holder that cannot renew its lease must stop
before another instance can acquire it. After 60 s without a renewal the work gets SIGTERM, which leaves it 50
s to save; it is killed 10 s before the lease expires. Times are monotonic; the expiry in the table follows
the wall clock, which differs by milliseconds between instances (Amazon Time Sync Service).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from userdata.agent.machine import log
from userdata.agent.machine.background import BackgroundPoller, BackgroundRunner, at_once
from userdata.agent.machine.clock import Clock
from userdata.agent.machine.errors import AgentError, LeaseLostError

RENEW_INTERVAL_SECONDS: Final = 30.0
_RETRY_INTERVAL_SECONDS: Final = 5.0
"""Interval after a failed renewal."""
STOP_AFTER_SECONDS: Final = 60.0
"""Seconds without a renewal after which the work is stopped if only the lease guards its data."""
KILL_MARGIN_SECONDS: Final = 10.0
"""Seconds before the lease expires at which the work is killed; the fence acts half of it later."""
_CALL_SECONDS: Final = 60.0
"""Time limit of a renewal with all its retries."""
_GRACE_SECONDS: Final = 60.0
"""Seconds to save after the lease was lost if an attached volume excludes other writers."""


class LeaseRenewer:
    """Renews a lease when due, in the background; cheap to call in every loop.

    Args:
        renew: renews the lease; None without a lease.
        clock: the first renewal is due at once.
        lease_seconds: duration of the lease if it alone keeps other instances from writing; None if an
            attached volume does too: a failed renewal is then only retried.
    """

    def __init__(
        self,
        renew: Callable[[], None] | None,
        clock: Clock,
        lease_seconds: float | None = None,
        run_in_background: BackgroundRunner = at_once,
    ) -> None:
        def renewed() -> bool:
            if renew is not None:
                renew()
            return True

        self._has_lease = renew is not None
        self._renewal = BackgroundPoller("lease", renewed, run_in_background, clock, _CALL_SECONDS)
        self._clock = clock
        self._lease_seconds = lease_seconds
        self._next_renewal_at = self._renewed_at = self._began_at = clock.monotonic()
        self._lost_at: float | None = None

    def renew_if_due(self) -> None:
        """Start a renewal if due, and take the result of a running one.

        Raises:
            LeaseLostError: another instance holds the lease or can soon acquire it.
        """
        now = self._clock.monotonic()
        if not self._has_lease or (now < self._next_renewal_at and not self._renewal.is_running):
            return
        if not self._renewal.is_running:
            self._began_at, self._next_renewal_at = now, now + RENEW_INTERVAL_SECONDS
        try:
            if self._renewal.poll():
                self._renewed_at = self._began_at
        except LeaseLostError:
            self._lost_at = now
            raise
        except AgentError as error:
            log.warning("lease not renewed", error=str(error))
            self._next_renewal_at = now + _RETRY_INTERVAL_SECONDS
        unrenewed_seconds = self._clock.monotonic() - self._renewed_at
        if self._lease_seconds is not None and unrenewed_seconds >= STOP_AFTER_SECONDS:
            raise LeaseLostError(
                f"lease not renewed for {unrenewed_seconds:.0f} s: another instance may acquire it"
            )

    @property
    def grace_seconds(self) -> float:
        """Seconds that the work has to save after `renew_if_due` has raised."""
        return (
            _GRACE_SECONDS
            if self._lease_seconds is None
            else max(self._kill_at - self._clock.monotonic(), 0.0)
        )

    @property
    def fence_at(self) -> float:
        """When the fence kills all work (monotonic seconds); infinite if a volume guards the data."""
        return self._kill_at + KILL_MARGIN_SECONDS / 2

    @property
    def _kill_at(self) -> float:
        if self._lease_seconds is None:
            return math.inf
        return (
            self._renewed_at + self._lease_seconds - KILL_MARGIN_SECONDS
            if self._lost_at is None
            else self._lost_at
        )
