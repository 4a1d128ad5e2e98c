"""Requested restarts of workers: workers keep running until the release that they start from is fetched."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

from contracts.agent.config import Service
from userdata.agent.machine import log
from userdata.agent.machine.background import BackgroundPoller, BackgroundRunner
from userdata.agent.machine.clock import Clock
from userdata.agent.machine.errors import AgentError
from userdata.agent.machine.host import LOAD

MAX_TRIES: Final = 5
"""Failed fetches of a release, after which workers restart from the current one."""


class RestartCoordinator:
    """Collects restart requests until the release to start from is fetched."""

    def __init__(
        self, release: Callable[[], Service], run_in_background: BackgroundRunner, clock: Clock
    ) -> None:
        """``release`` resolves and fetches it, which takes minutes; ``run_in_background`` runs it."""
        self._release = BackgroundPoller("release", release, run_in_background, clock, LOAD)
        self._requested: set[int] = set()
        self._tries = 0

    def poll(self, requested: Collection[int], current: Service) -> tuple[Service, frozenset[int]]:
        """Return the service that workers start from, and the slots to restart now.

        ``current`` is the service until then. Every heartbeat repeats a restart request.
        """
        self._requested |= set(requested)
        if not self._requested:
            return current, frozenset()
        try:
            service = self._release.poll()
        except AgentError as error:
            self._tries += 1
            log.error("release not fetched", reason=str(error), tries=self._tries, max_tries=MAX_TRIES)
            if self._tries < MAX_TRIES:
                self._requested.clear()
                return current, frozenset()
            service = current
        if service is None:
            return current, frozenset()
        slots = frozenset(self._requested)
        self._requested.clear()
        self._tries = 0
        return service, slots
