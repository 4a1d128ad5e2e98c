"""Workers as the agent keeps them: real processes and real signals; only time and the registry are ours."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from contracts.agent.config import Service
from contracts.registry.item import Progress, WorkerState
from contracts.registry.tenant_wait import TenantWait
from contracts.registry.worker_report import WorkerReport
from tests.node.configs import FakeClock
from tests.node.metadata import MetadataServer
from userdata.agent.aws.imds import Metadata
from userdata.agent.aws.registry import WorkerRegistry
from userdata.agent.machine.background import BackgroundRunner, at_once
from userdata.agent.machine.errors import AgentError
from userdata.agent.machine.host import SystemHost
from userdata.agent.work.heartbeat import HeartbeatSender
from userdata.agent.work.service.http_checks import HttpChecks
from userdata.agent.work.service.slots import Slot
from userdata.agent.work.service.worker_reports import WorkerReports
from userdata.agent.work.service.workers import Workers


class Bench:
    def __init__(self, tmp: Path, clock: FakeClock, server: MetadataServer) -> None:
        self.tmp, self.clock, self.server, self.registry = tmp, clock, server, RecordingRegistry()
        self.processes: list[subprocess.Popen[bytes]] = []
        self.secrets: Callable[[], Mapping[str, str]] = dict
        self.run_in_background: BackgroundRunner = at_once
        self.release: Callable[[], Service] | None = None
        self.http: HttpChecks | None = None
        self.host: SystemHost = SystemHost()
        self.heartbeats = HeartbeatSender(
            self.registry, Metadata(clock, server.url), clock, tmp, 10.0, at_once
        )

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
            worker_reports=WorkerReports(dict.fromkeys(range(count), (0,)), None, self.clock, self.tmp),
            run_in_background=lambda work: self.run_in_background(work),
            release=self.release,
            http=self.http,
        )

    def started(self, command: str, **settings: Any) -> Workers:
        """Return workers that have started and said so."""
        workers = self.workers(command, **settings)
        workers.tick()
        self.wait_up()
        return workers

    def tick_after(self, seconds: float, workers: Workers) -> None:
        self.clock.advance(seconds)
        workers.tick()

    def wait_up(self) -> None:
        for process in self.processes:
            assert process.stdout.readline() == b"up\n"


class RecordingRegistry(WorkerRegistry):
    def __init__(self) -> None:
        self.heartbeats: list[tuple[tuple[int, ...], float, WorkerState, float | None]] = []
        self.left: list[int] = []
        self.down = False
        self.asked = 0
        self.progress: Progress | None = None
        self.worker_reports: list[Mapping[int, WorkerReport]] = []
        self.first: list[frozenset[int]] = []
        self.restarts_requested: set[int] = set()
        """As the rows have it: gone with a row, and with the first beat of a start."""

    def record_heartbeat(
        self,
        slots: Iterable[int],
        now: float,
        state: WorkerState,
        deadline: float | None,
        progress: Progress | None = None,
        worker_reports: Mapping[int, WorkerReport] | None = None,
        first: Collection[int] = (),
        tenant_waits: tuple[TenantWait, ...] | None = None,
    ) -> frozenset[int]:
        self.asked += 1
        self.progress = progress
        if self.down:
            raise AgentError("no registry")
        self.heartbeats.append((tuple(slots), now, state, deadline))
        self.worker_reports.append(worker_reports or {})
        self.first.append(frozenset(first))
        self.restarts_requested -= set(first)
        return frozenset(self.restarts_requested)

    def deregister(self, slot: int) -> None:
        if self.down:
            raise AgentError("no registry")
        self.left.append(slot)
        self.restarts_requested.discard(slot)
