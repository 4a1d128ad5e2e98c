"""Dependencies outside the process that misbehave, on a fake clock: what a loop waits for in its own thread
costs simulated time; what it waits for in the background does not."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from signal import SIGKILL, SIGTERM, Signals
from typing import Any

from botocore.exceptions import ClientError

from tests.node.configs import FakeClock
from tests.waiting import TIMEOUT_SECONDS
from userdata.agent.machine.errors import AgentError
from userdata.agent.machine.host import ProcessInfo, SystemHost
from userdata.agent.work import notice
from userdata.agent.work.notice import Notice

FAULTS = ("never answers", "answers after a minute", "error", "garbage", "truncated", "denied")
BEGIN, CRASH, STOP, DEADLINE = 20.0, 30.0, 200.0, 60.0
"""When the fault begins, a worker crashes and the stop comes; seconds from the stop to the deadline."""
_MINUTE = 60.0
_WAITING = FAULTS[:2]


@dataclass
class _Blocked:
    resume: threading.Event
    due: float


class World(FakeClock):
    """The clock of one cell, with what happens when, and how long the longest pass took."""

    def __init__(self, fault: str) -> None:
        super().__init__()
        self.fault, self.began, self.longest, self.blocking = fault, self.monotonic(), 0.0, 0
        self.begin = BEGIN
        self.at: list[tuple[float, Callable[[], None]]] = []
        self._local = threading.local()
        self._blocked: list[tuple[_Blocked, threading.Event]] = []
        self._pass_since = self.monotonic()
        self._lock = threading.Lock()

    @property
    def seconds(self) -> float:
        return self.monotonic() - self.began

    def sleep(self, seconds: float) -> None:
        self.longest = max(self.longest, self.monotonic() - self._pass_since)
        super().sleep(seconds)
        for entry in [one for one in self.at if one[0] <= self.seconds]:
            self.at.remove(entry)
            entry[1]()
        for blocked, finished in [one for one in self._blocked if one[0].due <= self.monotonic()]:
            self._blocked.remove((blocked, finished))
            finished.clear()
            blocked.resume.set()
            assert finished.wait(TIMEOUT_SECONDS)
        self._pass_since = self.monotonic()

    def in_background(self, work: Callable[[], None]) -> None:
        """Run ``work``, in a thread if it may wait; go on once it has ended or waits."""
        if self.fault not in _WAITING or self.seconds < self.begin:
            work()
            return
        settled = threading.Event()

        def run() -> None:
            self._local.settled = settled
            try:
                work()
            finally:
                settled.set()

        threading.Thread(target=run, daemon=True).start()
        assert settled.wait(TIMEOUT_SECONDS)

    def outside(self, answer: Callable[..., Any], garbage: Any, truncated: Any) -> Callable[..., Any]:
        """Return a dependency that answers until the fault begins."""

        def call(*arguments: Any, **more: Any) -> Any:
            if self.seconds < self.begin:
                return answer(*arguments, **more)
            match self.fault:
                case "never answers":
                    self._wait(float("inf"))
                case "answers after a minute":
                    self._wait(_MINUTE)
                case "error":
                    raise AgentError("it fails")
                case "garbage" | "truncated":
                    result = garbage if self.fault == "garbage" else truncated
                    if isinstance(result, Exception):
                        raise result
                    return result
                case "denied":
                    raise ClientError({"Error": {"Code": "AccessDeniedException"}}, "UpdateItem")
            return answer(*arguments, **more)

        return call

    def _wait(self, seconds: float) -> None:
        settled = getattr(self._local, "settled", None)
        if settled is None:  # the loop itself
            self.blocking += 1
            self.advance(min(seconds, 3600.0))
            raise AgentError("waited in the loop")
        blocked = _Blocked(threading.Event(), self.monotonic() + seconds)
        with self._lock:
            self._blocked.append((blocked, settled))
        settled.set()
        blocked.resume.wait()

    def close(self) -> None:
        """End the threads that wait for ever."""
        for blocked, _ in self._blocked:
            blocked.resume.set()


@dataclass
class Machine(SystemHost):
    """Processes that ignore SIGTERM, and signals as they were sent."""

    world: World
    commands: Callable[..., str] = lambda *_: ""
    running: dict[int, int | None] = field(default_factory=dict)
    signals: list[tuple[float, int, Signals]] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def run(self, argv: Any, timeout: float, stdin: str = "", environment: Any = None) -> str:
        return self.commands(argv)

    def processes(self) -> list[ProcessInfo]:
        return [
            ProcessInfo(pid, pid, "work", 1, pid, pid, 0, handles_sigterm=True)
            for pid, code in self.running.items()
            if code is None
        ]

    def signal(self, pid: int, number: Signals) -> None:
        self.signals.append((self.world.seconds, pid, number))
        if number == SIGKILL:
            self.running[pid] = -9

    def signal_group(self, pid: int, number: Signals) -> None:
        """The processes get it one by one."""

    def spawn(self, *_: Any) -> FakeProcess:
        pid = 1000 + len(self.running)
        self.running[pid] = None
        return FakeProcess(self, pid)

    def times(self, number: Signals, pid: int) -> list[float]:
        return [at for at, to, sent in self.signals if (to, sent) == (pid, number)]


@dataclass
class FakeProcess:
    machine: Machine
    pid: int

    def poll(self) -> int | None:
        return self.machine.running[self.pid]


def announce(world: World, directory: Path) -> None:
    now = world.wall()
    notice.write(directory, Notice("spot", "terminate", "soon", now + DEADLINE, now, now))


def check(world: World, machine: Machine, pid: int) -> None:
    """Assert what holds in every cell: no pass waits, and the process ends by SIGKILL just in time."""
    assert world.blocking == 0
    assert world.longest < 1.0
    [asked] = machine.times(SIGTERM, pid)
    assert STOP <= asked <= STOP + 2
    [killed, *_] = machine.times(SIGKILL, pid)
    assert STOP + DEADLINE - 12 <= killed <= STOP + DEADLINE - 5
    assert world.seconds <= STOP + DEADLINE
