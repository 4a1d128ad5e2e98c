"""One start of a job's command, with all that it starts: spawned as the job's user, told once, ended at last.

The command may be a wrapper (``bash run.sh``), a launcher (torchrun) or the training itself. So SIGTERM goes
to its whole process group at once, its run is over when nothing of it is left, and what does not end is
killed when its time is up and not before.
"""

from __future__ import annotations

import os
import pwd
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from signal import SIGKILL, SIGTERM
from typing import Final, Protocol

from userdata.agent.config.names import JOB_USER
from userdata.agent.machine import log
from userdata.agent.machine.clock import Clock
from userdata.agent.machine.errors import AgentError
from userdata.agent.machine.host import Host
from userdata.agent.work.notice import Notice

STOP_SECONDS: Final = 100.0
"""To save without a notice: ``TimeoutStopSec`` of the unit, less what it takes to give the volume back."""
GIVE_BACK_SECONDS: Final = 10.0
"""Of a notice, left to unmount and detach: the work is killed so long before the deadline."""
LEFT_BEHIND_SECONDS: Final = 10.0
"""What a command leaves behind when it ends has so long after its SIGTERM."""

# The agent is the last to be killed for memory (OOMScoreAdjust of its unit), its work is not.
_AS_ANYBODY: Final = 'echo 0 2>/dev/null >/proc/self/oom_score_adj; exec "$@"'


class Process(Protocol):
    """What is needed of a process, such as ``subprocess.Popen``."""

    @property
    def pid(self) -> int:
        """Its id, and that of the process group that it leads."""
        ...

    def poll(self) -> int | None:
        """Return its exit code, None while it runs."""
        ...


Spawn = Callable[[list[str], dict[str, str], Path], Process]


def spawn(
    argv: Sequence[str],
    user: str,
    environment: Mapping[str, str] | None = None,
    place: Path | None = None,
    output: int | None = None,
) -> subprocess.Popen[bytes]:
    """Start a command in a session of its own, with nothing to read.

    Args:
        argv: the program and its arguments; one that is not there exits with 127.
        user: who runs it, with all groups of that user: devices of some makers belong to one. Empty: we do.
        environment: all of it; None: ours.
        place: its working directory.
        output: the descriptor that it writes to; None: where we write.

    Raises:
        AgentError: the user or the directory is not there.
    """
    identity: dict[str, object] = {}
    if user:
        try:
            account = pwd.getpwnam(user)
        except KeyError:
            raise AgentError(f"user: {user!r} is not there; allowed: a user of this machine") from None
        groups = os.getgrouplist(user, account.pw_gid)
        identity = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": groups}
    try:
        return subprocess.Popen(  # type: ignore[call-overload,no-any-return]  # noqa: S603
            ["/bin/sh", "-c", _AS_ANYBODY, "sh", *argv],
            env=environment,
            cwd=place,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            **identity,
        )
    except OSError as error:
        raise AgentError(f"{argv[0]}: cannot be started: {error}") from None


def user_id(user: str) -> int | None:
    """Return the id of the user whose every process is the job's; None for any other user."""
    try:
        return pwd.getpwnam(user).pw_uid if user == JOB_USER else None
    except KeyError:
        return None


def seconds_to_save(notice: Notice | None, wall: float) -> float:
    """Return how long the work may take from SIGTERM on, at ``wall`` (epoch seconds).

    Until shortly before the notice's deadline; of a late notice little is kept back.
    """
    if notice is None:
        return STOP_SECONDS
    left = max(notice.deadline - wall, 0.0)
    return left - min(GIVE_BACK_SECONDS, left / 10)


class JobProcess:
    """A command that was started, and whatever comes of it. `poll` must be called until it has ended.

    Args:
        process: the command itself, leader of its process group and session.
        user: whose every process belongs to it, wherever it hides (``setsid``, a daemon); None: only what is
            in its group or session.
    """

    def __init__(self, process: Process, host: Host, clock: Clock, user: int | None = None) -> None:
        self._process = process
        self._host = host
        self._clock = clock
        self._user = user
        self._told = False
        self._told_apart: set[int] = set()
        self._kill_at = float("inf")
        self._killed = False
        self._over = False

    @property
    def pid(self) -> int:
        """The command's own id."""
        return self._process.pid

    @property
    def told(self) -> bool:
        """Whether it was told to stop."""
        return self._told

    def stop(self, seconds: float) -> None:
        """Send SIGTERM to the process group, once; what is left of it after ``seconds`` is killed by `poll`.

        Again, only an earlier end counts. Safe in a signal handler.
        """
        self._kill_at = min(self._kill_at, self._clock.monotonic() + seconds)
        if not self._told and not self._over:
            self._told = True
            self._host.signal_group(self.pid, SIGTERM)

    def poll(self) -> int | None:
        """Return the command's exit code once nothing of it is left; None until then.

        A command that was told has all of the time that `stop` gave, and so has its group. What it leaves
        behind in another case, or outside of its group, is told then, and has ten seconds.
        """
        code = self._process.poll()
        now = self._clock.monotonic()
        if code is None:
            if now >= self._kill_at:
                self._kill()
            return None
        group, others = self._left()
        if not group and not others:
            self._over = True  # its id may soon be another's
            return code
        if now >= self._kill_at:
            self._kill()
        elif group and not self._told:
            log.warning("the command has ended and left processes behind", code=code, processes=len(group))
            self.stop(LEFT_BEHIND_SECONDS)
        elif not group and not self._told_apart.issuperset(others):
            # Only now: who is alive in the group may have started them, and tell them itself.
            log.warning("the command has left processes outside of its group", processes=len(others))
            for pid in set(others) - self._told_apart:
                self._host.signal(pid, SIGTERM)
            self._told_apart.update(others)
            self._kill_at = min(self._kill_at, now + LEFT_BEHIND_SECONDS)
        return None

    def _left(self) -> tuple[list[int], list[int]]:
        """Return what runs of its process group, and what else is its."""
        running = self._host.processes()
        group = [one.pid for one in running if one.group == self.pid]
        others = [
            one.pid
            for one in running
            if one.group != self.pid
            and (one.session == self.pid or (self._user is not None and one.user == self._user))
        ]
        return group, others

    def _kill(self) -> None:
        group, others = self._left()
        if not self._killed:
            log.error("killed: its time is up", processes=len(group) + len(others))
        self._killed = True
        self._host.signal_group(self.pid, SIGKILL)
        for pid in others:
            self._host.signal(pid, SIGKILL)
