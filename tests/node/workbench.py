"""Workers as the agent keeps them: real processes and real signals; only time and the registry are ours."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from contracts.agent.config import Service
from tests.node.clocks import FakeClock
from tests.node.metadata import MetadataServer
from tests.node.recording_registry import RecordingRegistry
from userdata.agent.aws.imds import Metadata
from userdata.agent.machine.background import BackgroundRunner
from userdata.agent.machine.host import SystemHost
from userdata.agent.work.heartbeat import HeartbeatSender
from userdata.agent.work.service.http_checks import HttpChecks
from userdata.agent.work.service.worker_reports import WorkerReports
from userdata.agent.work.service.workers import Slot, Workers


class Bench:
    def __init__(self, tmp: Path, clock: FakeClock, server: MetadataServer) -> None:
        self.tmp, self.clock, self.server, self.registry = tmp, clock, server, RecordingRegistry()
        self.processes: list[subprocess.Popen[bytes]] = []
        self.secrets: Callable[[], Mapping[str, str]] = dict
        self.run_in_background: BackgroundRunner = lambda work: work()
        self.release: Callable[[], Service] | None = None
        self.http: HttpChecks | None = None
        self.host: SystemHost = SystemHost()
        self.heartbeats = HeartbeatSender(self.registry, Metadata(clock, server.url), clock, tmp, 10.0)

    def workers(self, command: str, count: int = 2, **service: Any) -> Workers:
        def spawn(argv: list[str], more: Mapping[str, str]) -> subprocess.Popen[bytes]:
            process = subprocess.Popen(
                argv, stdout=subprocess.PIPE, start_new_session=True, env={**os.environ, **more}
            )
            self.processes.append(process)
            return process

        spec = Service(command=("bash", "-c", command), **service)
        places = [Slot(n, 0) for n in range(count)]
        return Workers(
            spec,
            places,
            self.heartbeats,
            self.host,
            self.clock,
            self.tmp,
            spawn=spawn,
            secrets=lambda: self.secrets(),
            worker_reports=WorkerReports(dict.fromkeys(range(count), 0), None, self.clock, self.tmp),
            run_in_background=lambda work: self.run_in_background(work),
            release=self.release,
            http=self.http,
        )

    def wait_up(self) -> None:
        for process in self.processes:
            assert process.stdout
            assert process.stdout.readline() == b"up\n"
