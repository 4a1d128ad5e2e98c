"""Keep the volume's lease while the job is prepared and runs, whatever takes how long."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from userdata.agent.machine import log
from userdata.agent.machine.clock import Clock
from userdata.agent.machine.errors import AgentError, LeaseLostError

RENEW_EVERY: Final = 30.0


class Keeper:
    """Renews a lease when it is due; asked as often as anybody likes.

    Args:
        renew: renews it; None where there is none.
        clock: what tells when it is due; the first time is at once.
    """

    def __init__(self, renew: Callable[[], None] | None, clock: Clock) -> None:
        self._renew = renew
        self._clock = clock
        self._due = clock.monotonic()

    def keep(self) -> None:
        """Renew if it is due. A renewal that fails is tried again: the lease outlives four of them.

        Raises:
            LeaseLostError: another instance has the lease.
        """
        if self._renew is None or self._clock.monotonic() < self._due:
            return
        self._due = self._clock.monotonic() + RENEW_EVERY
        try:
            self._renew()
        except LeaseLostError:
            raise
        except AgentError as error:
            log.warning("lease not renewed", error=str(error))
