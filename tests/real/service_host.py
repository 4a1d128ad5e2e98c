"""An instance of a service as a local process: the agent's own supervisor, in real time.

``python -m tests.real.service_host`` reads JSON lines: first a ``ServiceHostConfig``, then the
release that its workers start from (``{"kind": "release", "command": […], "environment": {…}}``), requests to
restart them (``{"kind": "restart"}``), and notices (``{"kind": "spot", "seconds": 2.0, "drain": 0.5}``:
seconds until termination, and seconds before it at which workers stop receiving). An interruption kills the
whole process.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, TextIO

from contracts.agent.config import HttpWorkers, Service
from contracts.registry import item as registry_item
from contracts.registry.item import Worker, WorkerState
from contracts.registry.worker_report import WorkerReport
from userdata.agent.machine import files, log
from userdata.agent.machine.clock import SystemClock
from userdata.agent.machine.host import SystemHost
from userdata.agent.work import notice
from userdata.agent.work.heartbeat import HeartbeatSender
from userdata.agent.work.service.http_checks import HttpChecks
from userdata.agent.work.service.slots import Slot, ready_file
from userdata.agent.work.service.worker_reports import WorkerReports
from userdata.agent.work.service.workers import Workers

_HEARTBEAT_SECONDS: Final = 1.0


@dataclass(frozen=True)
class ServiceHostConfig:
    """Boot configuration of an instance; ``secrets`` must not appear in command lines."""

    command: list[str]
    environment: dict[str, str]
    secrets: dict[str, str]
    slots: int
    directory: str
    image: str | None = None
    first: int = 0
    address: str = ""
    http: dict[str, Any] | None = None
    gpus: int = 1  # of each worker


class _FileRegistry:
    """The items of this instance's workers, in a file that the parent process reads."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._workers: dict[int, Worker] = {}
        self.to_restart: frozenset[int] = frozenset()

    def record_heartbeat(
        self,
        slots: Collection[int],
        now: float,
        state: WorkerState,
        deadline: float | None,
        _progress: object,
        reports: Mapping[int, WorkerReport],
        *_: object,
    ) -> frozenset[int]:
        """Write the workers; return the slots to restart, once."""
        for slot in slots:
            since = self._workers[slot].since if slot in self._workers else now
            self._workers[slot] = Worker(
                "", self._directory.name, slot, since, now, state, deadline, report=reports.get(slot)
            )
        self._write()
        requested, self.to_restart = self.to_restart, frozenset()
        return requested

    def deregister(self, slot: int) -> None:
        self._workers.pop(slot, None)
        self._write()

    def _write(self) -> None:
        items = [registry_item.dump(worker) for worker in self._workers.values()]
        files.write_json(_items_file(self._directory), {"items": items})


class _NoPool:
    """A metadata service that shows the instance in service."""

    def lifecycle_state(self) -> str:
        return "InService"


def kill_all(pid: int) -> None:
    """Kill a process with all descendants; a launcher starts children in their own sessions."""
    listing = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True)
    parents = {
        int(process_id): int(parent) for process_id, parent in map(str.split, listing.stdout.splitlines())
    }
    process_ids = [pid]
    for process_id in process_ids:  # grows during the iteration
        process_ids += [child for child, parent in parents.items() if parent == process_id]
    for process_id in process_ids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process_id, signal.SIGKILL)


def worker_slots(slots: int, first: int = 0) -> list[Slot]:
    """Return the slots of an instance, all on its first GPU."""
    return [Slot(first + number, 0) for number in range(slots)]


def _items_file(directory: Path) -> Path:
    return directory / "workers.json"


def read_workers(directory: Path) -> list[Worker]:
    file = _items_file(directory)
    items = json.loads(file.read_text())["items"] if file.exists() else []
    return [registry_item.parse(item) for item in items]


def are_ready(directory: Path, slots: Sequence[Slot]) -> bool:
    return all(ready_file(slot, directory).exists() for slot in slots)


def supervise(config: ServiceHostConfig, lines: TextIO) -> None:
    """Run the workers until a notice has drained them or the parent process ends."""
    directory = Path(config.directory)
    service = Service(
        image=config.image,
        command=tuple(config.command),
        environment=config.environment,
        reports_readiness=True,
        gpus_per_worker=config.gpus,
    )
    clock = SystemClock()
    registry = _FileRegistry(directory)
    heartbeat_sender = HeartbeatSender(registry, _NoPool(), clock, directory, _HEARTBEAT_SECONDS)  # type: ignore[arg-type]
    slots = [replace(slot, gpu_count=config.gpus) for slot in worker_slots(config.slots, config.first)]
    gpus = {slot.number: slot.gpus for slot in slots}
    releases = [service]
    http = None
    if config.http is not None:
        http = HttpChecks(HttpWorkers(**config.http), [slot.number for slot in slots], clock, config.address)
        http.serve()
    workers = Workers(
        service,
        slots,
        heartbeat_sender,
        SystemHost(),
        clock,
        directory,
        secrets=lambda: config.secrets,
        worker_reports=WorkerReports(gpus, None, clock, directory),
        release=lambda: releases[0],
        http=http,
    )

    def handle(line: Mapping[str, Any]) -> None:
        if line["kind"] == "restart":
            registry.to_restart = frozenset(gpus)
        else:
            releases[:] = [replace(service, command=tuple(line["command"]), environment=line["environment"])]

    signal.signal(signal.SIGTERM, lambda *_: workers.stop())
    threading.Thread(target=_listen, args=(lines, directory, handle), daemon=True).start()
    workers.run()


def _listen(lines: Iterable[str], directory: Path, handle: Callable[[Mapping[str, Any]], None]) -> None:
    """Pass lines on, but handle notices as the agent's watch unit does: write them, SIGTERM at the drain."""
    for line in lines:
        fields = json.loads(line)
        if fields["kind"] in ("release", "restart"):
            handle(fields)
            continue
        received = _read(fields)
        notice.write(directory, received)
        time.sleep(max(received.drain_at - time.time(), 0.0))
        os.kill(os.getpid(), signal.SIGTERM)
    os.kill(os.getpid(), signal.SIGTERM)  # the parent process has ended


def _read(body: Mapping[str, float | str]) -> notice.Notice:
    now, seconds = time.time(), float(body["seconds"])
    deadline = now + seconds
    drain_at = max(now, deadline - float(body["drain"]))
    return notice.Notice(str(body["kind"]), "terminate", f"{deadline}", deadline, drain_at, now)


def main() -> int:
    log.configure()
    supervise(ServiceHostConfig(**json.loads(sys.stdin.readline())), sys.stdin)
    return 0


if __name__ == "__main__":
    sys.exit(main())
