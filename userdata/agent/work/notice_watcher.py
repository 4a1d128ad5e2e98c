"""Watcher of the instance metadata for interruption notices and lifecycle changes; signals the workload."""

from __future__ import annotations

import math
import signal
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from contracts.agent.config import Config
from contracts.agent.names import HINT_FILE, UNIT_VOLUME
from userdata.agent.aws.imds import (
    LIFECYCLE_STATE,
    REBALANCE,
    SPOT_ACTION,
    Metadata,
    MetadataDocument,
    MetadataUnavailableError,
    is_warmed,
)
from userdata.agent.machine import files, log
from userdata.agent.machine.clock import Clock
from userdata.agent.machine.errors import AgentError
from userdata.agent.machine.host import Host
from userdata.agent.work import notice
from userdata.agent.work.notice import Notice

HOOK_MARGIN_SECONDS: Final = 3.0
"""The hook is completed this long before AWS's deadline; a call takes well under a second."""
_TERMINATION_POLL_SECONDS: Final = 1.0
"""Maximum poll interval after a notice; service workers get SIGTERM this long before they have to drain."""
_START_SECONDS: Final = 5.0
"""Time of a new process to install its handler: without one SIGTERM ends it. It reads the notice itself."""
_EAGER_SECONDS: Final = 60.0
"""Time of one call a second to complete the hook, from the first one and after the deadline; the account's
limit of Auto Scaling requests is shared with the controller. Then it is called once in this time."""


@dataclass
class _PendingTermination:
    """A notice in progress. Deadlines are monotonic: later jumps of the wall clock do not move them."""

    notice: Notice
    deadline: float
    drain_at: float
    pid: int | None = -1
    """The workload's main process at the last look; -1: not looked yet."""
    has_handler_at: float = 0.0
    signalled: int | None = None
    """The process that got SIGTERM; one that systemd starts after it gets its own."""
    is_hook_completed: bool = False
    hook_since: float = math.inf
    """When completing the hook was first tried."""
    next_hook_at: float = 0.0

    def is_eager(self, now: float) -> bool:
        """Return whether the hook is to be completed within a second."""
        since_deadline = now - self.deadline
        return now - self.hook_since < _EAGER_SECONDS or -2 * _EAGER_SECONDS < since_deadline < _EAGER_SECONDS


@dataclass(eq=False)
class Watcher:
    """Watches one instance. `run` repeats `tick` on a fixed grid, so the duration of a pass does not add up.

    Args:
        complete_hook: completes the terminating lifecycle hook; returns False while no hook is active.
        directory: where the notice and the rebalance hint are written.
    """

    config: Config
    metadata: Metadata
    host: Host
    clock: Clock
    directory: Path
    complete_hook: Callable[[], bool] | None

    def __post_init__(self) -> None:
        self._unit = self.config.work_unit
        self._termination: _PendingTermination | None = None
        self._spot = ""
        self._hint = ""
        self._lifecycle = ""
        self._was_in_service = False
        self._unavailable_since: float | None = None
        self._resume()

    def run(self, stop: Callable[[], bool] = lambda: False) -> None:
        """Tick until ``stop`` returns True."""
        next_poll_at = self.clock.monotonic()
        while not stop():
            self.tick()
            interval = self.config.poll_seconds
            if self._termination and self._termination.deadline > next_poll_at - _EAGER_SECONDS:
                interval = min(interval, _TERMINATION_POLL_SECONDS)
            next_poll_at = max(next_poll_at + interval, self.clock.monotonic())
            self.clock.sleep(next_poll_at - self.clock.monotonic())

    def tick(self) -> None:
        """Poll once and act. Metadata and host failures are not raised; the next pass retries."""
        spot = self._read_metadata(SPOT_ACTION)
        if spot and spot.text != self._spot:
            self._spot = spot.text
            self._accept(notice.from_spot_action(spot, self.clock.wall(), self.config.drain_seconds))
        state = self._read_metadata(LIFECYCLE_STATE)
        if state:
            self._lifecycle = state.text.strip()
            self._was_in_service |= self._lifecycle == "InService"
        if state and self._is_leaving_service():
            hooks = self.config.hooks  # without a terminating hook AWS does not wait
            seconds = hooks.terminate_seconds if hooks and hooks.terminate else 0.0
            self._accept(notice.from_lifecycle(self._lifecycle, self.clock.wall(), seconds))
        if self._termination:
            self._act(self._termination)
            return
        rebalance = self._read_metadata(REBALANCE)
        if rebalance and rebalance.text != self._hint:
            self._hint = rebalance.text
            log.info("rebalance recommendation", document=self._hint[:200])
            hint = {"version": notice.VERSION, "document": self._hint, "seen": self.clock.wall()}
            try:
                files.write_json(self.directory / HINT_FILE, hint)
            except OSError as error:
                log.error("hint not written", error=str(error))

    def _read_metadata(self, path: str) -> MetadataDocument | None:
        try:
            response = self.metadata.get(path)
        except MetadataUnavailableError as error:
            if self._unavailable_since is None:
                self._unavailable_since = self.clock.monotonic()
                log.warning("metadata unavailable", error=str(error))
            return None
        if self._unavailable_since is not None:
            log.info(
                "metadata available again", seconds=round(self.clock.monotonic() - self._unavailable_since, 1)
            )
            self._unavailable_since = None
        return response

    def _accept(self, new: Notice | None) -> None:
        """Act on ``new`` unless it is already being acted on or an earlier deadline is pending."""
        if new is None or (self._termination and self._termination.notice.identity == new.identity):
            return
        now = self.clock.monotonic()
        new = replace(new, uptime=now)
        deadline, drain_at = now + new.deadline - new.received_at, now + new.drain_at - new.received_at
        if self._termination and deadline >= self._termination.deadline:
            return
        latest = _PendingTermination(new, deadline, drain_at)
        if earlier := self._termination:
            latest.pid, latest.has_handler_at = earlier.pid, earlier.has_handler_at
            latest.signalled = earlier.signalled
        self._termination = latest
        try:
            notice.write(self.directory, new)
        except OSError as error:  # /run is full: the signal goes out all the same
            log.error("notice not written", error=str(error))
        log.warning("notice", kind=new.kind, action=new.action, seconds_left=round(deadline - now, 1))

    def _act(self, termination: _PendingTermination) -> None:
        now = self.clock.monotonic()
        signal_at = now if self.config.training else termination.drain_at - _TERMINATION_POLL_SECONDS
        try:
            pid = self.host.main_pid(self._unit)
            if pid != termination.pid:
                is_new = termination.pid != -1
                termination.pid, termination.has_handler_at = pid, now + is_new * _START_SECONDS
            if pid and pid != termination.signalled and now >= max(signal_at, termination.has_handler_at):
                self.host.signal(pid, signal.SIGTERM)
                termination.signalled = pid
                log.info("SIGTERM sent", unit=self._unit, seconds_left=round(termination.deadline - now, 1))
        except AgentError as error:
            log.error("cannot signal the workload", unit=self._unit, error=str(error))
            pid = 0  # unknown: wait until the deadline
        if termination.is_hook_completed or self.complete_hook is None:
            return
        # Complete once the workload has stopped or time is up: completing earlier would cut it short.
        is_out_of_time = now >= termination.deadline - HOOK_MARGIN_SECONDS
        stopped = pid is None and now >= signal_at and not self._is_attaching_volume()
        if (is_out_of_time or (stopped and self._is_leaving_service())) and now >= termination.next_hook_at:
            termination.hook_since = min(termination.hook_since, now)
            termination.next_hook_at = now if termination.is_eager(now) else now + _EAGER_SECONDS
            try:
                termination.is_hook_completed = self.complete_hook()
            except AgentError as error:
                log.error("lifecycle hook not completed", error=str(error))

    def _is_leaving_service(self) -> bool:
        """Return whether the group terminates the instance or returns it to the warm pool after service.

        On its first way into the warm pool the instance has no workload yet.
        """
        return self._lifecycle == "Terminated" or (
            is_warmed(self._lifecycle) and (self._was_in_service or self._termination is not None)
        )

    def _is_attaching_volume(self) -> bool:
        """Return whether ``volume up`` still runs: it reads the notice and releases volume and lease."""
        try:
            return self.config.volume is not None and self.host.main_pid(UNIT_VOLUME) is not None
        except AgentError as error:
            log.error("unit state unknown", unit=UNIT_VOLUME, error=str(error))
            return True

    def _resume(self) -> None:
        """Resume a notice that an earlier process of this boot wrote; a second SIGTERM does no harm."""
        earlier = notice.read(self.directory)
        if earlier and (remaining := earlier.seconds_left(self.clock)) > 0:
            deadline = self.clock.monotonic() + remaining
            drain_at = deadline - earlier.deadline + earlier.drain_at
            self._termination = _PendingTermination(earlier, deadline, drain_at)
