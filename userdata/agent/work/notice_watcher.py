"""Watch the metadata for a notice and see to it that the work hears it in time and gets all of it."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from contracts.agent.config import Config
from contracts.agent.names import HINT_FILE, UNIT_VOLUME
from userdata.agent.aws.imds import (
    LIFECYCLE_STATE,
    REBALANCE,
    SPOT_ACTION,
    Answer,
    Metadata,
    MetadataUnavailableError,
    is_warmed,
)
from userdata.agent.machine import files, log
from userdata.agent.machine.clock import Clock
from userdata.agent.machine.errors import AgentError
from userdata.agent.machine.host import Host
from userdata.agent.work import notice
from userdata.agent.work.notice import Notice

# The hook must be completed before AWS's own deadline; a call takes well under a second.
HOOK_MARGIN_SECONDS: Final = 3.0
# From the notice on, the work is looked after this often, in seconds.
_LAST_POLL: Final = 1.0


@dataclass
class _Doom:
    """A notice that is being acted on. The deadlines are monotonic.

    Later jumps of the wall clock move nothing.
    """

    notice: Notice
    deadline: float
    drain_at: float
    signalled: bool = False
    hook_done: bool = False


@dataclass(eq=False)
class Watcher:
    """One pass is `tick`; `run` repeats it on a fixed grid, so that the time a pass takes does not add up.

    Args:
        complete_hook: completes the terminating lifecycle hook; returns False while AWS knows no active hook.
        directory: where the notice and the hint are written.
    """

    config: Config
    metadata: Metadata
    host: Host
    clock: Clock
    directory: Path
    complete_hook: Callable[[], bool] | None

    def __post_init__(self) -> None:
        self._unit = self.config.work_unit
        self._doom: _Doom | None = None
        self._spot = ""
        self._hint = ""
        self._lifecycle = ""
        self._served = False
        self._silent_since: float | None = None
        self._resume()

    def run(self, stop: Callable[[], bool] = lambda: False) -> None:
        """Tick until ``stop`` says so."""
        due = self.clock.monotonic()
        while not stop():
            self.tick()
            step = min(self.config.poll_seconds, _LAST_POLL) if self._doom else self.config.poll_seconds
            due = max(due + step, self.clock.monotonic())
            self.clock.sleep(due - self.clock.monotonic())

    def tick(self) -> None:
        """Look once, and do what is due. Never raises for a metadata or host failure.

        The next pass tries again.
        """
        spot = self._look(SPOT_ACTION)
        if spot and spot.text != self._spot:
            self._spot = spot.text
            self._take(notice.from_spot_action(spot, self.clock.wall(), self.config.drain_seconds))
        state = self._look(LIFECYCLE_STATE)
        if state:
            self._lifecycle = state.text.strip()
            self._served |= self._lifecycle == "InService"
        if state and self._leaves():
            hooks = self.config.hooks  # without a terminating hook AWS does not wait for us at all
            seconds = hooks.terminate_seconds if hooks and hooks.terminate else 0.0
            self._take(notice.from_lifecycle(self._lifecycle, self.clock.wall(), seconds))
        if self._doom:
            self._act(self._doom)
            return
        rebalance = self._look(REBALANCE)
        if rebalance and rebalance.text != self._hint:
            self._hint = rebalance.text
            log.info("rebalance recommendation", document=self._hint[:200])
            files.write_json(
                self.directory / HINT_FILE,
                {"version": notice.VERSION, "document": self._hint, "seen": self.clock.wall()},
            )

    def _look(self, path: str) -> Answer | None:
        try:
            answer = self.metadata.get(path)
        except MetadataUnavailableError as error:
            if self._silent_since is None:
                self._silent_since = self.clock.monotonic()
                log.warning("metadata unavailable", error=str(error))
            return None
        if self._silent_since is not None:
            log.info("metadata back", seconds=round(self.clock.monotonic() - self._silent_since, 1))
            self._silent_since = None
        return answer

    def _take(self, found: Notice | None) -> None:
        """Make ``found`` the notice we act on, unless we already act on it or on an earlier deadline."""
        if found is None or (self._doom and self._doom.notice.identity == found.identity):
            return
        now = self.clock.monotonic()
        deadline, drain_at = now + found.deadline - found.seen, now + found.drain_at - found.seen
        if self._doom and deadline >= self._doom.deadline:
            return
        signalled = self._doom.signalled if self._doom else False
        self._doom = _Doom(found, deadline, drain_at, signalled)
        notice.write(self.directory, found)
        log.warning("notice", kind=found.kind, action=found.action, seconds_left=round(deadline - now, 1))

    def _act(self, doom: _Doom) -> None:
        now = self.clock.monotonic()
        due = now if self.config.training else doom.drain_at
        try:
            pid = self.host.main_pid(self._unit)
            if pid is not None and not doom.signalled and now >= due:
                self.host.signal(pid, signal.SIGTERM)
                doom.signalled = True
                log.info("work told to stop", unit=self._unit, seconds_left=round(doom.deadline - now, 1))
        except AgentError as error:
            log.error("work cannot be told", unit=self._unit, error=str(error))
            pid = -1  # unknown: leave it all the time there is
        if doom.hook_done or self.complete_hook is None:
            return
        # The end: the work has stopped by itself, or no time is left. Completing earlier would cut it short.
        over = now >= doom.deadline - HOOK_MARGIN_SECONDS
        stopped = pid is None and now >= due and not self._brings_volume()
        if over or (stopped and self._leaves()):
            try:
                doom.hook_done = self.complete_hook()
            except AgentError as error:
                log.error("lifecycle hook not completed", error=str(error))

    def _leaves(self) -> bool:
        """Tell whether the group ends the instance, or puts it back into its warm pool once it has served.

        On the way into the pool for the first time nothing works yet that would have to end.
        """
        return self._lifecycle == "Terminated" or (
            is_warmed(self._lifecycle) and (self._served or self._doom is not None)
        )

    def _brings_volume(self) -> bool:
        """Tell whether ``volume up`` still runs: it hears the notice itself and gives back what it holds."""
        try:
            return self.config.volume is not None and self.host.main_pid(UNIT_VOLUME) is not None
        except AgentError as error:
            log.error("unit cannot be asked", unit=UNIT_VOLUME, error=str(error))
            return True

    def _resume(self) -> None:
        """Take up a notice that an earlier process of this boot wrote; delivering it twice does no harm."""
        earlier = notice.read(self.directory)
        wall = self.clock.wall()
        if earlier and earlier.deadline > wall:
            now = self.clock.monotonic()
            left = min(earlier.deadline - wall, earlier.deadline - earlier.seen)
            self._doom = _Doom(earlier, now + left, now + left - (earlier.deadline - earlier.drain_at))
