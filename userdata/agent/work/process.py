"""One start of a job's command, with all that it starts: spawned as the job's user, told once, ended at last.

The command may be a wrapper (``bash run.sh``), a launcher (torchrun) or the training itself. So SIGTERM goes
to whoever in it can act on it (`audience`), its run is over when nothing of it is left, and what does not end
is killed when its time is up and not before.
"""

from __future__ import annotations

import os
import pwd
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from signal import SIGKILL, SIGTERM
from typing import Final, Protocol

from contracts.agent.names import JOB_USER
from userdata.agent.machine import log
from userdata.agent.machine.clock import Clock
from userdata.agent.machine.errors import AgentError
from userdata.agent.machine.host import Host, Running
from userdata.agent.work.notice import Notice

STOP_SECONDS: Final = 100.0
"""To save without a notice: ``TimeoutStopSec`` of the unit, less what it takes to give the volume back."""
GIVE_BACK_SECONDS: Final = 10.0
"""Of a notice, left to unmount and detach: the work is killed so long before the deadline."""
LEFT_BEHIND_SECONDS: Final = 10.0
"""What a command leaves behind when it ends has so long after its SIGTERM."""

_SHELLS: Final = frozenset({"sh", "ash", "bash", "dash", "ksh", "mksh", "zsh", "fish", "busybox"})

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


_Identity = tuple[int, int]


def _identity(one: Running) -> _Identity:
    return one.pid, one.began


@dataclass(frozen=True)
class Audience:
    """What belongs to a command, by what a SIGTERM for it means to them. Parents stand before children."""

    told: tuple[Running, ...]
    """Whom it is for."""
    waiting: tuple[Running, ...]
    """Who waits for one of these, and would only die of it."""
    below: tuple[Running, ...]
    """What those who are told have started themselves."""

    @property
    def everybody(self) -> tuple[Running, ...]:
        """All that belongs to the command."""
        return self.told + self.waiting + self.below


def audience(
    running: Iterable[Running], pid: int, heard: frozenset[_Identity] = frozenset(), user: int | None = None
) -> Audience:
    """Tell for whom in the command ``pid`` a SIGTERM is; ``heard`` have had theirs, all of ``user`` is its.

    Told is a shell, and what it runs: it waits for that and passes nothing on. Told is whoever has a handler,
    but not what that has started: it passes on what it wants passed on (torchrun does), and it needs its data
    loaders while it saves. PyTorch's end at a SIGTERM that is not their parent's, and its next batch then
    fails (torch/csrc/DataLoader.cpp). Who has no handler and started nobody who has is told, too. What a
    shell with a trap starts once it was told is what saves.

    A command of another user's is the client of a container. Nothing is for it while there is somebody in the
    container: its init would tell the whole group. With its first command a container ends, and the kernel
    kills what is still in there, so a shell without a trap is left to wait for whom it runs that saves.
    """
    known = {one.pid: one for one in running}
    children: dict[int, list[Running]] = {}
    for one in known.values():
        children.setdefault(one.parent, []).append(one)
    theirs = {one.pid for one in known.values() if user is not None and one.user == user}
    own = {one.pid for one in known.values() if pid in (one.pid, one.group, one.session)} | theirs
    in_container = bool(theirs) and pid in known and pid not in theirs
    told, waiting, below = [], [], []
    stack = [(known[each], True) for each in sorted(own, reverse=True) if known[each].parent not in own]
    while stack:
        one, is_open = stack.pop()
        is_shell = one.name in _SHELLS
        kids = children.get(one.pid, ())
        if not is_open:
            below.append(one)
        elif in_container and (
            one.pid not in theirs or (is_shell and not one.hears and _any_hears(kids, children))
        ):
            waiting.append(one)
        elif is_shell or one.hears or not _any_hears(kids, children):
            told.append(one)
        else:
            waiting.append(one)
        passes_on = one.hears and (not is_shell or _identity(one) in heard)
        passes_on = passes_on and not (in_container and one.pid not in theirs)
        is_open = is_open and not passes_on
        stack.extend((child, is_open) for child in kids)
    return Audience(tuple(told), tuple(waiting), tuple(below))


def _any_hears(some: Iterable[Running], children: Mapping[int, list[Running]]) -> bool:
    stack = list(some)
    while stack:
        one = stack.pop()
        if one.hears:
            return True
        stack.extend(children.get(one.pid, ()))
    return False


class JobProcess:
    """A command that was started, and whatever comes of it. `poll` must be called until it has ended.

    Args:
        process: the command itself, leader of its process group and session.
        user: whose every process belongs to it, wherever it hides (``setsid``, a daemon); None: only what
            descends from it or is in its group or session.
    """

    def __init__(self, process: Process, host: Host, clock: Clock, user: int | None = None) -> None:
        self._process = process
        self._host = host
        self._clock = clock
        self._user = user
        self._told = False
        self._over = False
        self._killed = False
        self._kill_at = float("inf")
        # Processes by id and birth. Replaced and never changed: a signal handler may come in between.
        self._seen: frozenset[_Identity] = frozenset()
        self._heard: frozenset[_Identity] = frozenset()
        self._spared: frozenset[_Identity] = frozenset()

    @property
    def pid(self) -> int:
        """The command's own id."""
        return self._process.pid

    @property
    def told(self) -> bool:
        """Whether it was told to stop."""
        return self._told

    def stop(self, seconds: float) -> None:
        """Send SIGTERM, once to each; what is left after ``seconds`` is killed by `poll`.

        Again, only an earlier end counts. Safe in a signal handler.
        """
        self._kill_at = min(self._kill_at, self._clock.monotonic() + seconds)
        if not self._told and not self._over:
            self._told = True
            self._tell(audience(self._host.processes(), self.pid, user=self._user))

    def poll(self) -> int | None:
        """Return the command's exit code once nothing of it is left; None until then.

        Who was told has all of the time that `stop` gave. What the command leaves behind when it and they
        have ended is told then, and has ten seconds.
        """
        code = self._process.poll()
        if self._over or (code is None and not self._told and self._clock.monotonic() < self._kill_at):
            return code
        running = self._host.processes()
        found = audience(running, self.pid, self._heard, self._user)
        left = self._left(running, found)
        if code is not None and not left:
            self._over = True  # its id may soon be another's
            return code
        if self._clock.monotonic() >= self._kill_at:
            self._kill(left)
        elif code is not None and self._heard.isdisjoint(map(_identity, left)):
            log.warning("the command has ended and left processes behind", code=code, processes=len(left))
            self._tell(found)
            if self._heard.isdisjoint(map(_identity, left)):
                self._send(left)
            self._kill_at = min(self._kill_at, self._clock.monotonic() + LEFT_BEHIND_SECONDS)
        elif self._told:
            self._tell(found)  # who came since: was being started when the others were told
        return None

    def _left(self, running: Iterable[Running], found: Audience) -> list[Running]:
        """Return what runs of it, also what was seen once and has lost its parent since."""
        own = {one.pid for one in found.everybody}
        return [
            one
            for one in running
            if one.pid in own
            or _identity(one) in self._seen
            or (self._user is not None and one.user == self._user)
        ]

    def _tell(self, found: Audience) -> None:
        self._seen |= {_identity(one) for one in found.everybody}
        # For good: an interpreter that ends, its state saved, drops its handlers before its loaders are gone.
        self._spared |= {_identity(one) for one in found.waiting + found.below}
        self._send([one for one in found.told if _identity(one) not in self._spared])

    def _send(self, to: Iterable[Running]) -> None:
        new = [one for one in to if _identity(one) not in self._heard]
        self._heard |= {_identity(one) for one in new}
        for one in new:
            self._host.signal(one.pid, SIGTERM)

    def _kill(self, left: Iterable[Running]) -> None:
        if not self._killed:
            log.error("killed: its time is up", processes=[one.name for one in left])
        self._killed = True
        self._host.signal_group(self.pid, SIGKILL)
        for one in left:
            self._host.signal(one.pid, SIGKILL)
