"""Who is to be started anew, and from what: workers go on until it is there."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

from contracts.agent.config import Service
from userdata.agent.machine import log
from userdata.agent.machine.background import Aside, Beside
from userdata.agent.machine.errors import AgentError

TRIES: Final = 5
"""So often it is asked from what to start; then workers start anew from what there is."""


class Renewal:
    """Gathers wishes that workers start anew until what they start from is fetched."""

    def __init__(self, release: Callable[[], Service], aside: Aside) -> None:
        """``release`` says it and fetches it, which takes minutes: ``aside`` does the asking."""
        self._release = Beside(release, aside)
        self._wished: set[int] = set()
        self._tries = 0

    def poll(self, wished: Collection[int], now: Service) -> tuple[Service, frozenset[int]]:
        """Return from what workers start, and the slots that are to do so anew at this moment.

        ``now`` is from what they start until then. Who is wished is wished again with each heartbeat.
        """
        self._wished |= set(wished)
        if not self._wished:
            return now, frozenset()
        try:
            found = self._release.poll()
        except AgentError as error:
            self._tries += 1
            log.error("release not fetched", reason=str(error), tries=self._tries, most=TRIES)
            if self._tries < TRIES:
                self._wished.clear()
                return now, frozenset()
            found = now
        if found is None:
            return now, frozenset()
        due = frozenset(self._wished)
        self._wished.clear()
        self._tries = 0
        return found, due
