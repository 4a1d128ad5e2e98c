"""One training job on one host: processes, signals and files are real, the rest is faked."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from contracts.agent.config import Training
from tests.node import configs
from tests.node.configs import FakeClock
from tests.node.metadata import MetadataServer
from tests.node.workbench import RecordingRegistry
from tests.waiting import TIMEOUT_SECONDS
from userdata.agent.aws.imds import Metadata
from userdata.agent.aws.jobs import JobState
from userdata.agent.lease.renewal import LeaseRenewer
from userdata.agent.machine.background import BackgroundRunner, at_once
from userdata.agent.machine.host import SystemHost
from userdata.agent.work.failures.faults import HostDiagnosis
from userdata.agent.work.failures.inspection import GpuStatus
from userdata.agent.work.heartbeat import HeartbeatSender
from userdata.agent.work.training.output import Output
from userdata.agent.work.training.train import Trainer, TrainingPaths


class JobList:
    """The job table, as a list of what was written."""

    def __init__(self) -> None:
        self.revision = configs.REVISION
        self.marks: list[str] = []
        self.reasons: list[str] = []
        self.again = 0
        self.hosts: list[float] = []
        """The newest checkpoint at each fault of a host."""

    def is_finished(self) -> bool:
        return "done" in self.marks

    def mark(self, state: JobState, reason: str = "") -> None:
        self.marks.append(state)
        self.reasons.append(reason)

    def count_host_fault(self, checkpoint: float) -> int:
        if self.hosts and checkpoint > self.hosts[-1]:
            self.hosts.clear()
        self.hosts.append(checkpoint)
        return len(self.hosts)

    def retries(self) -> int:
        return self.again

    def publish_finished(self) -> None:
        self.marks.append("taken down")


class FakeInspector:
    """A host that is what the test says."""

    def __init__(self) -> None:
        self.diagnosis = HostDiagnosis()
        self.gpu_status = GpuStatus()
        self.diagnoses = 0

    def check_gpus(self) -> GpuStatus:
        return self.gpu_status

    def diagnose(self) -> HostDiagnosis:
        self.diagnoses += 1
        return self.diagnosis


class HostInRealTime(SystemHost):
    """Simulated time stands still until SIGKILL has had its effect."""

    def __init__(self, processes: list[subprocess.Popen[bytes]]) -> None:
        super().__init__()
        self._started = processes

    def signal_group(self, pid: int, number: signal.Signals) -> None:
        super().signal_group(pid, number)
        for process in self._started:
            if number == signal.SIGKILL and process.pid == pid:
                process.wait(TIMEOUT_SECONDS)


class Bench:
    """What a trainer needs, and what it did."""

    def __init__(self, tmp: Path, clock: FakeClock, server: MetadataServer) -> None:
        self.tmp, self.clock, self.job, self.registry = tmp, clock, JobList(), RecordingRegistry()
        self.heartbeats = HeartbeatSender(
            self.registry, Metadata(clock, server.url), clock, tmp, 10.0, at_once
        )
        self.checkpoints = tmp / "data" / "checkpoints" / "resnet"
        self.checkpoints.mkdir(parents=True)
        self.looks: Any = FakeInspector()
        self.rung = list[str]()
        self.run_in_background: BackgroundRunner = at_once
        self.starts: list[float] = []
        self.processes: list[subprocess.Popen[bytes]] = []
        self.log = (tmp / "log").open("ab", buffering=0)
        self.output = Output(self.log.fileno())
        self.make_ready: Callable[[], None] = lambda: None
        self.host = HostInRealTime(self.processes)
        self.results: Any = None
        self.record: Any = None
        self.variables: dict[str, str] = {}

    def spawn(self, argv: list[str], env: dict[str, str], cwd: Path) -> subprocess.Popen[bytes]:
        self.starts.append(self.clock.monotonic())
        pipe = self.output.pipe()
        process = subprocess.Popen(argv, env=env, cwd=cwd, start_new_session=True, stdout=pipe, stderr=pipe)
        os.close(pipe)
        self.processes.append(process)
        return process

    def trainer(
        self,
        command: str,
        renew: Callable[[], None] | None = None,
        restarts: int = 2,
        lasts: float | None = None,
        stalled_after_minutes: int = 0,  # simulated hours pass while a busy machine starts a process
        secrets: Callable[[], Mapping[str, str]] = dict,
    ) -> Trainer:
        stop_requested_at = Training(
            "resnet",
            "jobs",
            "repo",
            configs.REVISION,
            ("bash", "-c", command),
            "u",
            "p",
            max_restarts=restarts,
            stalled_after_minutes=stalled_after_minutes,
        )
        return Trainer(
            stop_requested_at,
            TrainingPaths(
                self.tmp,
                self.tmp / "data",
                self.tmp,
                self.tmp / "data" / "artifacts" / "resnet",
                self.checkpoints.parent,
            ),
            self.job,
            self.heartbeats,
            self.host,
            self.clock,
            LeaseRenewer(renew, self.clock, lasts),
            self.looks,
            lambda: self.make_ready(),
            self.rung.append,
            self.spawn,
            self.output,
            results=self.results,
            recorder=self.record,
            variables=self.variables,
            secrets=secrets,
            run_in_background=self.run_in_background,
        )

    def stand_still(self) -> None:
        """Let simulated time stand still while a process runs, however busy this machine is."""

        def on_sleep(seconds: float) -> None:
            if self.processes and self.processes[-1].poll() is None:
                self.clock.advance(-seconds)
                time.sleep(0.005)

        self.clock.on_sleep = on_sleep

    def close(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()
        self.output.flush()
        self.log.close()
