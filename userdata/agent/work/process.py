"""One run of a job's command with all its descendants: start, SIGTERM, SIGKILL.

The command may be a wrapper (``bash run.sh``), a launcher (torchrun) or the training itself. So SIGTERM goes
to the processes that can act on it (`find_signal_targets`), the run is finished when no process is left, and
remaining processes are killed when their time is up, not earlier.
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
from userdata.agent.machine.host import Host, ProcessInfo
from userdata.agent.work.notice import Notice

STOP_SECONDS: Final = 100.0
"""Time to save without a notice: the unit's ``TimeoutStopSec`` less the time to detach the volume."""
GIVE_BACK_SECONDS: Final = 10.0
"""Time before a notice's deadline for unmounting and detaching: the workload is killed this much earlier."""
UNKNOWN_CODE: Final = 255
"""Exit code of a process that another process started."""
LEFTOVER_SECONDS: Final = 10.0
"""Time from SIGTERM to SIGKILL for processes that outlive the command."""

_SHELLS: Final = frozenset({"sh", "ash", "bash", "dash", "ksh", "mksh", "zsh", "fish", "busybox"})

# The unit's OOMScoreAdjust protects the agent only; its workload starts at 0.
_RESET_OOM_SCORE: Final = 'echo 0 2>/dev/null >/proc/self/oom_score_adj; exec "$@"'


class Process(Protocol):
    """The part of ``subprocess.Popen`` that the agent uses."""

    @property
    def pid(self) -> int:
        """Process id, and id of the process group that it leads."""
        ...

    def poll(self) -> int | None:
        """Return the exit code; None while the process runs."""
        ...


Spawn = Callable[[list[str], dict[str, str], Path], Process]


def home(user: str) -> Path:
    """Return a user's home directory, ``/`` if it does not exist; raise `AgentError` for an unknown user.

    An empty ``user`` is the agent's.
    """
    directory = Path(_account(user).pw_dir)
    return directory if directory.is_dir() else Path("/")


def _account(user: str) -> pwd.struct_passwd:
    try:
        return pwd.getpwnam(user) if user else pwd.getpwuid(os.getuid())
    except KeyError:
        raise AgentError(f"user {user!r} does not exist; name a user of this machine") from None


def environment(user: str, home: Path) -> dict[str, str]:
    """Return the variables that every command of a workload has: of the agent's it inherits ``PATH`` alone.

    Those of the unit and of systemd (``INVOCATION_ID``, ``JOURNAL_STREAM``: systemd.exec(5)) are the agent's.
    """
    name = user or _account(user).pw_name
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "USER": name,
        "LOGNAME": name,
        "HOME": str(home),
        "LANG": "C.UTF-8",
    }


def spawn(
    argv: Sequence[str],
    user: str,
    environment: Mapping[str, str] | None = None,
    working_directory: Path | None = None,
    output: int | None = None,
) -> subprocess.Popen[bytes]:
    """Start a command in a new session, with standard input from ``/dev/null``.

    Args:
        argv: the program and its arguments; a missing program exits with 127.
        user: user to run as, with all its groups (device files may belong to one); empty: the agent's user.
        environment: the whole environment; None: inherited.
        working_directory: None: inherited.
        output: file descriptor of standard output and error; None: inherited.

    Raises:
        AgentError: the user or the directory does not exist.
    """
    identity: dict[str, object] = {}
    if user:
        account = _account(user)
        groups = os.getgrouplist(user, account.pw_gid)
        identity = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": groups}
    try:
        return subprocess.Popen(  # type: ignore[call-overload,no-any-return]  # noqa: S603
            ["/bin/sh", "-c", _RESET_OOM_SCORE, "sh", *argv],
            env=environment,
            cwd=working_directory,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            **identity,
        )
    except (OSError, ValueError) as error:  # ValueError: a null byte in a variable, say
        raise AgentError(f"{argv[0]}: cannot be started: {error}") from None


@dataclass(frozen=True)
class AdoptedProcess:
    """A process that an earlier process of the agent has started; its exit code is lost."""

    info: ProcessInfo
    host: Host

    @property
    def pid(self) -> int:
        """Process id, and id of the process group that it leads."""
        return self.info.pid

    def poll(self) -> int | None:
        """Return `UNKNOWN_CODE` once it has ended."""
        identities = map(_identity, self.host.processes())
        return None if _identity(self.info) in identities else UNKNOWN_CODE


def user_id(user: str) -> int | None:
    """Return the id of ``user`` if all of that user's processes belong to the job; else None."""
    try:
        return pwd.getpwnam(user).pw_uid if user == JOB_USER else None
    except KeyError:
        return None


def seconds_to_save(notice: Notice | None, clock: Clock) -> float:
    """Return the seconds from SIGTERM now to SIGKILL.

    The reserve before a notice's deadline is at most a tenth of the remaining time.
    """
    if notice is None:
        return STOP_SECONDS
    remaining = max(notice.seconds_left(clock), 0.0)
    return remaining - min(GIVE_BACK_SECONDS, remaining / 10)


_Identity = tuple[int, int]


def _identity(process: ProcessInfo) -> _Identity:
    return process.pid, process.started


@dataclass(frozen=True)
class SignalTargets:
    """The processes of a command, by how SIGTERM reaches them. Parents come before children."""

    to_signal: tuple[ProcessInfo, ...]
    """Receive the signal from the agent."""
    waiting: tuple[ProcessInfo, ...]
    """Wait for one of the signalled processes; a SIGTERM would only kill them."""
    descendants: tuple[ProcessInfo, ...]
    """Started by signalled processes, which decide about them."""

    @property
    def all_processes(self) -> tuple[ProcessInfo, ...]:
        """All processes of the command."""
        return self.to_signal + self.waiting + self.descendants


def find_signal_targets(
    running: Iterable[ProcessInfo],
    pid: int,
    signalled: frozenset[_Identity] = frozenset(),
    user: int | None = None,
) -> SignalTargets:
    """Classify the processes of the command ``pid`` by how SIGTERM must reach them.

    Signalled are:

    - a shell and the processes it runs: a shell waits for them and forwards no signal;
    - a process with a SIGTERM handler, but not its descendants: it forwards the signal itself if needed
      (torchrun does) and needs its data loaders while it saves. PyTorch's data loaders exit on a SIGTERM that
      their parent did not send, and its next batch fails. Source: torch/csrc/DataLoader.cpp;
    - a process without a handler if none of its descendants has one, and none that the same shell runs: in
      ``train | tee log`` the last lines of the save still need ``tee``, which ends with its input.

    Processes that a shell with a trap starts after its SIGTERM are its handler at work: not signalled.

    A command of another user is a Docker client. It is not signalled while processes run in the container:
    the container's init would signal the whole group. A container ends with its first command, and the kernel
    kills the rest, so a shell without a trap is not signalled while a descendant handles SIGTERM.

    Args:
        running: all processes of the machine.
        pid: the command.
        signalled: processes that received SIGTERM already.
        user: user id whose processes all belong to the command.
    """
    by_pid = {process.pid: process for process in running}
    children: dict[int, list[ProcessInfo]] = {}
    for process in by_pid.values():
        children.setdefault(process.parent, []).append(process)
    of_user = {process.pid for process in by_pid.values() if user is not None and process.user == user}
    members = {
        process.pid for process in by_pid.values() if pid in (process.pid, process.group, process.session)
    } | of_user
    in_container = bool(of_user) and pid in by_pid and pid not in of_user
    to_signal, waiting, descendants = [], [], []
    stack = [
        (by_pid[member], True)
        for member in sorted(members, reverse=True)
        if by_pid[member].parent not in members
    ]
    while stack:
        process, is_open = stack.pop()
        is_shell = _is_shell(process)
        child_processes = children.get(process.pid, ())
        if not is_open:
            descendants.append(process)
        elif in_container and (
            process.pid not in of_user
            or (is_shell and not process.handles_sigterm and _any_handles_sigterm(child_processes, children))
        ):
            waiting.append(process)
        elif is_shell or process.handles_sigterm or not _is_waiting(process, by_pid, children):
            to_signal.append(process)
        else:
            waiting.append(process)
        passes_on = process.handles_sigterm and (not is_shell or _identity(process) in signalled)
        passes_on = passes_on and not (in_container and process.pid not in of_user)
        is_open = is_open and not passes_on
        stack.extend((child, is_open) for child in child_processes)
    return SignalTargets(tuple(to_signal), tuple(waiting), tuple(descendants))


def _is_waiting(
    process: ProcessInfo, by_pid: Mapping[int, ProcessInfo], children: Mapping[int, list[ProcessInfo]]
) -> bool:
    """Return whether a process without a handler waits for one with it: a descendant, or in a pipeline."""
    in_pipeline = _is_shell(by_pid.get(process.parent))
    return _any_handles_sigterm(children.get(process.pid, ()), children) or (
        in_pipeline and _any_handles_sigterm(children.get(process.parent, ()), children)
    )


def _is_shell(process: ProcessInfo | None) -> bool:
    return process is not None and process.name in _SHELLS


def _any_handles_sigterm(processes: Iterable[ProcessInfo], children: Mapping[int, list[ProcessInfo]]) -> bool:
    stack = list(processes)
    while stack:
        process = stack.pop()
        if process.handles_sigterm:
            return True
        stack.extend(children.get(process.pid, ()))
    return False


class JobProcess:
    """A running command with its descendants. Call `poll` until it returns an exit code.

    Args:
        process: the command itself, leader of its process group and session.
        user: user id whose processes all belong to the command, also daemons (``setsid``); None: only its
            descendants and the members of its group and session.
    """

    def __init__(self, process: Process, host: Host, clock: Clock, user: int | None = None) -> None:
        self._process = process
        self._host = host
        self._clock = clock
        self._user = user
        self._is_stop_requested = False
        self._is_finished = False
        self._is_killed = False
        self._kill_at = float("inf")
        # Keys are (pid, start time). Sets are replaced, never mutated: a signal handler may run in between.
        self._observed: frozenset[_Identity] = frozenset()
        self._signalled: frozenset[_Identity] = frozenset()
        self._exempt: frozenset[_Identity] = frozenset()

    @property
    def pid(self) -> int:
        """Process id of the command."""
        return self._process.pid

    @property
    def ignores_kill(self) -> bool:
        """Whether processes run a minute after SIGKILL: they wait for a driver or a disk without an end."""
        return self._is_killed and not self._is_finished and self._clock.monotonic() >= self._kill_at + 60.0

    @property
    def is_stop_requested(self) -> bool:
        """Whether `stop` was called."""
        return self._is_stop_requested

    def stop(self, seconds: float, *, is_sent: bool = False) -> None:
        """Send SIGTERM, once to each process; `poll` kills what remains after ``seconds``.

        A further call can only shorten the time. Safe in a signal handler. ``is_sent``: an earlier process of
        the agent has sent it to those that run.
        """
        self._kill_at = min(self._kill_at, self._clock.monotonic() + seconds)
        if not self._is_stop_requested and not self._is_finished:
            self._is_stop_requested = True
            targets = find_signal_targets(self._host.processes(), self.pid, user=self._user)
            if is_sent:
                self._signalled = frozenset(map(_identity, targets.to_signal))
            self._signal_targets(targets)

    def poll(self) -> int | None:
        """Return the command's exit code once no process is left; None until then.

        Signalled processes get all the time that `stop` gave. Processes that outlive the command and these
        get a SIGTERM then, and ten seconds.
        """
        code = self._process.poll()
        if self._is_finished or (
            code is None and not self._is_stop_requested and self._clock.monotonic() < self._kill_at
        ):
            return code
        running = self._host.processes()
        targets = find_signal_targets(running, self.pid, self._signalled, self._user)
        remaining = self._find_remaining(running, targets)
        if code is not None and not remaining:
            self._is_finished = True  # the kernel may reuse its id
            return code
        if self._clock.monotonic() >= self._kill_at:
            self._kill(remaining)
        elif code is not None and self._signalled.isdisjoint(map(_identity, remaining)):
            log.warning("command left processes running", code=code, processes=len(remaining))
            self._signal_targets(targets)
            if self._signalled.isdisjoint(map(_identity, remaining)):
                self._send_sigterm(remaining)
            self._kill_at = min(self._kill_at, self._clock.monotonic() + LEFTOVER_SECONDS)
        elif self._is_stop_requested:
            self._signal_targets(targets)  # processes that were being started at the first SIGTERM
        return None

    def _find_remaining(self, running: Iterable[ProcessInfo], targets: SignalTargets) -> list[ProcessInfo]:
        """Return the command's running processes, also those that have lost their parent."""
        pids = {process.pid for process in targets.all_processes}
        return [
            process
            for process in running
            if process.pid in pids
            or _identity(process) in self._observed
            or (self._user is not None and process.user == self._user)
        ]

    def _signal_targets(self, targets: SignalTargets) -> None:
        self._observed |= {_identity(process) for process in targets.all_processes}
        # Permanent: an interpreter that exits drops its handlers before its data loaders have ended.
        self._exempt |= {_identity(process) for process in targets.waiting + targets.descendants}
        self._send_sigterm(
            [process for process in targets.to_signal if _identity(process) not in self._exempt]
        )

    def _send_sigterm(self, processes: Iterable[ProcessInfo]) -> None:
        new = [process for process in processes if _identity(process) not in self._signalled]
        self._signalled |= {_identity(process) for process in new}
        for process in new:
            self._host.signal(process.pid, SIGTERM)

    def _kill(self, remaining: Iterable[ProcessInfo]) -> None:
        if not self._is_killed:
            log.error("SIGKILL sent: time is up", processes=[process.name for process in remaining])
        self._is_killed = True
        self._host.signal_group(self.pid, SIGKILL)
        for process in remaining:
            self._host.signal(process.pid, SIGKILL)
