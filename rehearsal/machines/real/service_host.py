"""An instance of a service as a local process: the agent's own supervisor, in real time.

``python -m rehearsal.machines.real.service_host`` reads JSON lines: first a ``ServiceHostConfig``, then
notices (``{"kind": "spot", "seconds": 2.0, "drain": 0.5}``: seconds until termination, and seconds before it
at which workers stop receiving). An interruption kills the whole process.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TextIO

from contracts.agent.config import HttpWorkers, Service
from userdata.agent.machine import log
from userdata.agent.machine.clock import SystemClock
from userdata.agent.machine.host import SystemHost
from userdata.agent.work import notice
from userdata.agent.work.heartbeat import HeartbeatSender
from userdata.agent.work.service.http_checks import HttpChecks
from userdata.agent.work.service.workers import Slot, Workers, ready_file

_HEARTBEAT_SECONDS: Final = 1.0


@dataclass(frozen=True)
class ServiceHostConfig:
    """Boot configuration of an instance; ``secrets`` must not appear in command lines.

    With ``image`` its workers are containers, named by slot; ``first`` is the first slot number, for several
    instances on one machine. With ``http``, the fields of `HttpWorkers`, its workers are HTTP servers at
    ``address``.
    """

    command: list[str]
    environment: dict[str, str]
    secrets: dict[str, str]
    slots: int
    directory: str
    image: str | None = None
    first: int = 0
    address: str = ""
    http: dict[str, Any] | None = None


class _NoRegistry:
    """A registry that does nothing: the parent process reads the workers' ready files."""

    def record_heartbeat(self, *arguments: object) -> frozenset[int]:
        """Write nothing; return no restart requests."""
        return frozenset()

    def deregister(self, slot: int) -> None:
        """Remove nothing."""


class _NoPool:
    """A metadata service that shows the instance in service."""

    def lifecycle_state(self) -> str:
        """Return the target lifecycle state."""
        return "InService"


def worker_slots(slots: int, first: int = 0) -> list[Slot]:
    """Return the slots of an instance, all on its first GPU."""
    return [Slot(first + number, 0) for number in range(slots)]


def are_ready(directory: Path, slots: Sequence[Slot]) -> bool:
    """Return whether all workers of an instance are ready."""
    return all(ready_file(slot, directory).exists() for slot in slots)


def supervise(config: ServiceHostConfig, notices: TextIO) -> None:
    """Run the workers until a notice has drained them or the parent process ends."""
    directory = Path(config.directory)
    service = Service(
        image=config.image,
        command=tuple(config.command),
        environment=config.environment,
        reports_readiness=True,
    )
    clock = SystemClock()
    heartbeat_sender = HeartbeatSender(_NoRegistry(), _NoPool(), clock, directory, _HEARTBEAT_SECONDS)  # type: ignore[arg-type]
    slots = worker_slots(config.slots, config.first)
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
        http=http,
    )
    signal.signal(signal.SIGTERM, lambda *_: workers.stop())
    threading.Thread(target=_listen, args=(notices, directory), daemon=True).start()
    workers.run()


def _listen(notices: Iterable[str], directory: Path) -> None:
    """Handle notices like the agent's watch unit: write each and send SIGTERM at the drain time."""
    for line in notices:
        received = _read(json.loads(line))
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
    """Run an instance until its end."""
    log.configure()
    supervise(ServiceHostConfig(**json.loads(sys.stdin.readline())), sys.stdin)
    return 0


if __name__ == "__main__":
    sys.exit(main())
