"""Keep the job's lease while the job is prepared and runs, and end its work before another may have it.

Checkpoints on EFS can be written by whoever has them mounted: a holder that cannot renew its lease has to
stop before somebody else can take it. After 60 s without a renewal the work is told to stop, which leaves it
50 s to save, and is killed 10 s before the lease ends. By the monotonic clock: the end in the table follows
our wall clock, and those of two instances differ by milliseconds (Amazon Time Sync Service).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from userdata.agent.machine import log
from userdata.agent.machine.clock import Clock
from userdata.agent.machine.errors import AgentError, LeaseLostError

RENEW_EVERY: Final = 30.0
_TRY_EVERY: Final = 5.0
"""After a renewal that failed."""
STOP_AFTER: Final = 60.0
"""Seconds without a renewal after which the work is told to stop, where the lease alone guards it."""
SPARE: Final = 10.0
"""Of the lease, when what works is killed; half of it later nothing works, or the agent ends itself."""
_GRACE: Final = 60.0
"""To save after the lease was lost, where an attached volume keeps others out."""


class Keeper:
    """Renews a lease when it is due; asked as often as anybody likes.

    Args:
        renew: renews it; None where there is none.
        clock: what tells when it is due; the first time is at once.
        lasts: seconds that the lease lasts, where nothing but it keeps another instance from writing; None:
            something else does, and a renewal that fails is only tried again.
    """

    def __init__(self, renew: Callable[[], None] | None, clock: Clock, lasts: float | None = None) -> None:
        self._renew = renew
        self._clock = clock
        self._lasts = lasts
        self._due = self._renewed = clock.monotonic()
        self._lost: float | None = None

    def keep(self) -> None:
        """Renew if it is due.

        Raises:
            LeaseLostError: another instance has the lease, or may soon have it.
        """
        now = self._clock.monotonic()
        if self._renew is None or now < self._due:
            return
        self._due = now + RENEW_EVERY
        try:
            self._renew()
        except LeaseLostError:
            self._lost = now
            raise
        except AgentError as error:
            log.warning("lease not renewed", error=str(error))
            self._due = now + _TRY_EVERY
            silent = self._clock.monotonic() - self._renewed
            if self._lasts is not None and silent >= STOP_AFTER:
                raise LeaseLostError(
                    f"the lease was not renewed for {silent:.0f} s: another instance may take it"
                ) from None
        else:
            self._renewed = now

    @property
    def grace(self) -> float:
        """Seconds that the work has to save after `keep` has raised."""
        return _GRACE if self._lasts is None else max(self._kill_at - self._clock.monotonic(), 0.0)

    @property
    def dead_at(self) -> float:
        """When all that works must be dead (monotonic seconds); infinite where that is no matter."""
        return self._kill_at + SPARE / 2

    @property
    def _kill_at(self) -> float:
        if self._lasts is None:
            return math.inf
        return self._renewed + self._lasts - SPARE if self._lost is None else self._lost
