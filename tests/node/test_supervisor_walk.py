"""A random life of a job over several hosts: exits, hangs, checkpoints, hosts that break, notices, leases.

Nothing is real but the supervisor: processes are lines of a script, and time is simulated.
"""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.agent.config import Training
from tests.node.bench import JobList
from tests.node.clocks import FakeClock
from userdata.agent.lease.renewal import LeaseRenewer
from userdata.agent.machine.errors import CommandError, LeaseLostError
from userdata.agent.tasks import job
from userdata.agent.tasks import training as task
from userdata.agent.work.failures import faults
from userdata.agent.work.failures.faults import (
    MAX_HOSTS,
    MAX_UNAVAILABLE_TRIES,
    MIN_DELAY_SECONDS,
    DiskFacts,
    FailedRun,
    Fault,
    FaultVerdict,
    HostDiagnosis,
)
from userdata.agent.work.failures.inspection import GpuStatus
from userdata.agent.work.training.train import Trainer, TrainingPaths

RESTARTS = 2
HOSTS = {
    "sound": HostDiagnosis(),
    "gpu": HostDiagnosis(gpus_expected=8, gpus_missing=1),
    "xid": HostDiagnosis(xids=(79,)),
    "disk": HostDiagnosis(data=DiskFacts("Input/output error")),
    "cut off": HostDiagnosis(unreachable=("AWS",)),
    "taken": HostDiagnosis(is_terminating=True),
    "full": HostDiagnosis(data=DiskFacts(is_full=True)),  # the job's own
}
AILING = {"gpu", "xid", "disk", "cut off"}


class CoarseClock(FakeClock):
    """Half seconds become half minutes: an hour is soon over, and no pause is shorter than it should be."""

    def sleep(self, seconds: float) -> None:
        super().sleep(60.0 * seconds if seconds <= 0.5 else seconds)


@dataclass(frozen=True)
class Line:
    """What one try of the job meets: how it ends, after how long, and what is the matter with the host."""

    fetch: str = "there"
    """``there``, ``away`` or ``refused``: the server of the code."""
    code: int | None = 1
    """None: it hangs."""
    seconds: float = 60.0
    saves: bool = False
    host: str = "sound"
    event: str = ""
    """``notice`` or ``lease``: while it runs, the instance is announced to be taken or the lease is lost."""


class Scripted:
    """A process that does what its line says."""

    def __init__(self, life: Life, line: Line) -> None:
        self.pid = 4242
        self._life, self._line = life, line
        self._ends = life.clock.monotonic() + line.seconds
        self._code: int | None = None

    def poll(self) -> int | None:
        life, line = self._life, self._line
        if self._code is None and life.clock.monotonic() >= self._ends:
            if line.saves:
                life.save()
            life.happens(line.event)
            if line.code is not None and self._code is None:
                self._code = line.code
            self._ends = float("inf")
        return self._code

    def signalled(self, number: signal.Signals) -> None:
        if self._code is None:
            self._code = 0 if number is signal.SIGTERM else -number


class Life:
    """One job, instance after instance, until it has ended or nothing more is written."""

    def __init__(self, folder: Path, lines: list[Line]) -> None:
        self.clock, self.table, self.lines = CoarseClock(), JobList(), lines
        self.data = folder / "data"
        self.checkpoints = self.data / "checkpoints" / "resnet"
        self.checkpoints.mkdir(parents=True)
        self.folder = folder
        self.at = 0
        self.fetched = "there"
        self.process: Scripted | None = None
        self.rung: list[str] = []
        self.said: list[tuple[str, Any]] = []
        self.is_taken = self.is_lost = False
        self.tries = 0
        self.is_fresh = False

    @property
    def line(self) -> Line:
        return self.lines[self.at] if self.at < len(self.lines) else Line(seconds=0.0, event="notice")

    def save(self) -> None:
        path = self.checkpoints / f"step-{len(list(self.checkpoints.iterdir()))}"
        path.touch()
        os.utime(path, (self.clock.wall(), self.clock.wall()))
        self.said.append(("saved", None))

    def happens(self, event: str) -> None:
        if event == "lease":
            self.is_lost = True
        elif event == "notice":
            self.is_taken = True
            self.act()

    # What the supervisor meets.

    def make_ready(self) -> None:
        self.tries += 1
        self.fetched = self.line.fetch
        if self.fetched == "away":
            raise CommandError("git: exit 128: Could not resolve host: git.example.com")
        if self.fetched == "refused":
            raise CommandError("git: exit 128: not our ref")
        self.is_fresh = True

    def spawn(self, argv: list[str], env: dict[str, str], cwd: Path) -> Scripted:
        self.tries += not self.is_fresh
        self.is_fresh = False
        self.fetched = "there"
        self.said.append(("started", None))
        self.process = Scripted(self, self.line)
        return self.process

    def examine(self) -> HostDiagnosis:
        host = "interrupted" if self.is_taken else self.line.host
        cause = "host" if host in AILING else self.fetched if self.fetched == "away" else "job"
        self.said.append(("fault", "interrupted" if self.is_taken else cause))
        self.at += 1
        return HOSTS[host]

    def renew(self) -> None:
        if self.is_lost:
            raise LeaseLostError("taken over")

    def instance(self) -> str:
        """Run one instance through the real task; return how it let the volume go and itself be ended."""
        host: Any = SimpleNamespace(
            run=lambda argv: self.said.append(("ran", argv)),
            processes=list,
            mounted=lambda path: None,
            signal_group=lambda pid, number: self.process and self.process.signalled(number),
            signal=lambda pid, number: self.process and self.process.signalled(number),
            polling=lambda on_poll: nullcontext(),
        )
        training = Training("resnet", "jobs", "repo", "0" * 40, ("x",), "", "p", max_restarts=RESTARTS)
        heartbeats: Any = SimpleNamespace(send=lambda slots, **more: None, deregister=lambda slot: None)
        trainer = Trainer(
            training,
            TrainingPaths(
                self.folder,
                self.data,
                self.folder,
                self.data / "artifacts" / "resnet",
                self.data / "checkpoints",
            ),
            self.table,
            heartbeats,
            host,
            self.clock,
            LeaseRenewer(self.renew, self.clock),
            SimpleNamespace(check_gpus=GpuStatus, diagnose=self.examine),
            self.make_ready,
            self.rung.append,
            self.spawn,
            SimpleNamespace(pieces=0, flush=lambda: None),  # type: ignore[arg-type]
        )
        node: Any = SimpleNamespace(
            config=SimpleNamespace(training=training, volume="dl"),
            wait_outside_warm_pool=lambda stop: None,
            heartbeat_sender=lambda: heartbeats,
            is_terminating=lambda: self.is_taken,
            on_sigterm=self.on_sigterm,
            host=host,
        )
        self.is_taken = self.is_lost = False
        downs: list[str] = []
        with (
            mock.patch.object(job, "jobs", return_value=self.table),
            mock.patch.object(task, "_lease_renewer", return_value=None),
            mock.patch.object(task.snapshots, "background_snapshots", return_value=None),
            mock.patch.object(task.recording, "recorder", return_value=None),
            mock.patch.object(task, "_trainer", return_value=trainer),
            mock.patch.object(task.holding, "release", side_effect=lambda _: downs.append("down")),
        ):
            try:
                assert task.run(node) == 0
            except LeaseLostError:
                downs.append("lost")
        assert downs in (["down"], ["down", "lost"])
        return "lost" if "lost" in downs else "ended"

    def on_sigterm(self, act: Callable[[], None]) -> None:
        self.act = act


LINES = st.builds(
    Line,
    fetch=st.sampled_from(["there"] * 6 + ["away", "refused"]),
    code=st.sampled_from([1, 1, 3, -9, None, 0]),
    seconds=st.sampled_from([0.0, 1.0, 60.0, 7200.0]),
    saves=st.booleans(),
    host=st.sampled_from(["sound"] * 6 + sorted(HOSTS.keys() - {"taken"})),
    event=st.sampled_from([""] * 10 + ["notice", "lease"]),
)


SCRIPTS = [
    [Line(host="gpu")] * 6,
    [Line()] * 6,
    [Line(code=None)] * 6,
    [Line(fetch="refused")] * 6,
    [Line(fetch="away")] * 60,
    [Line(event="notice")] * 6,
    [Line(host="full")] * 6,
    [Line(host="gpu"), Line(), Line(), Line(host="xid"), Line(saves=True, host="gpu"), Line(host="disk")],
    [Line(), Line(), Line(saves=True), Line(), Line()],
]


@settings(max_examples=100, deadline=None)
@given(st.lists(LINES, min_size=1, max_size=14))
def test_whatever_happens_the_rules_hold(lines: list[Line]) -> None:
    live(lines)


@pytest.mark.parametrize("number", range(len(SCRIPTS)))
def test_the_rules_hold_in_each_plain_case(number: int) -> None:
    live(SCRIPTS[number])


judge, after = faults.classify, faults.respond


def _never_the_host(failure: FailedRun, seen: HostDiagnosis) -> FaultVerdict:
    found = judge(failure, seen)
    return replace(found, fault=Fault.JOB) if found.fault is Fault.HOST else found


def _always_the_host(failure: FailedRun, seen: HostDiagnosis) -> FaultVerdict:
    return FaultVerdict(Fault.HOST, failure.description)


def _full_is_the_host(failure: FailedRun, seen: HostDiagnosis) -> FaultVerdict:
    return judge(failure, replace(seen, root=seen.data))


def _away_is_the_job(failure: FailedRun, seen: HostDiagnosis) -> FaultVerdict:
    return judge(replace(failure, is_dependency_unavailable=False), seen)


def _job_is_away(failure: FailedRun, seen: HostDiagnosis) -> FaultVerdict:
    return judge(replace(failure, is_dependency_unavailable=True), seen)


def _no_pause(*given: Any, **more: Any) -> Any:
    tally, step = after(*given, **more)
    return tally, replace(step, delay_seconds=0.0)


def _progress_forgets_nothing(*given: Any, **more: Any) -> Any:
    return after(*given, **{**more, "has_progressed": False})


def _one_more(tally: Any, judgement: Any, allowed: int, **more: Any) -> Any:
    return after(tally, judgement, allowed + 1, **more)


@pytest.mark.parametrize(
    ("name", "mutant"),
    [
        ("classify", _never_the_host),
        ("classify", _always_the_host),
        ("classify", _full_is_the_host),
        ("classify", _away_is_the_job),
        ("classify", _job_is_away),
        ("respond", _no_pause),
        ("respond", _progress_forgets_nothing),
        ("respond", _one_more),
        ("MAX_HOSTS", 4),
        ("MAX_UNAVAILABLE_TRIES", 40),
    ],
)
def test_a_broken_rule_is_seen(name: str, mutant: Any) -> None:
    """Each class confused with another, each bound moved: the plain cases tell."""
    seen = []
    with mock.patch.object(faults, name, mutant):
        for number, script in enumerate(SCRIPTS):
            try:
                live(script)
            except AssertionError:
                seen.append(number)
    assert seen


def live(lines: list[Line]) -> None:
    """Let a job live by the lines, instance after instance, and hold what it did to the rules."""
    with tempfile.TemporaryDirectory() as folder:
        life = Life(Path(folder), lines)
        while life.at < len(lines) and "taken down" not in life.table.marks:
            started_at, tried, at = life.clock.monotonic(), life.tries, life.at
            life.said.append(("instance", None))
            life.instance()
            # Never a loop without a pause: each further try costs at least the first one.
            again = life.tries - tried - 1
            assert life.clock.monotonic() - started_at >= MIN_DELAY_SECONDS * max(again, 0)
            if life.at == at:
                life.at += 1  # taken or overtaken: the next instance meets what comes next
        _check(life)


def _check(life: Life) -> None:
    """Count by the script alone what the supervisor must have counted."""
    faults = hosts = away = most_faults = most_hosts = 0
    for kind, cause in life.said:
        match kind, cause:
            case "saved", _:
                faults = hosts = 0
            case "instance", _:
                faults = away = 0
            case "started", _:
                away = 0
            case "fault", "job":
                faults += 1
            case "fault", "host":
                hosts += 1
            case "fault", "away":
                away += 1
                hosts += away > MAX_UNAVAILABLE_TRIES
        most_faults, most_hosts = max(most_faults, faults), max(most_hosts, hosts)
    has_failed = life.table.marks[-2:] == ["failed", "taken down"]
    assert most_faults <= RESTARTS + 1
    assert most_hosts <= MAX_HOSTS + 1
    assert has_failed is (most_faults > RESTARTS or most_hosts > MAX_HOSTS), life.said
    assert ("JobFailures" in life.rung) is has_failed
