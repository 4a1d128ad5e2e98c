"""Rehearsal of a service with real workers on a real broker while a simulated market interrupts instances.

Each instance is a process: the agent's supervisor with its workers as children
(`machines/real/service_host.py`). Simulated time passes at most ``PACE`` times as fast as real time.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from contracts.agent.config import Service
from market.rules import TICK_SECONDS
from market.supply.trace import PoolTrace
from pulumi_on_moto.errors import LocalCloudError
from rehearsal.machines.real import load_client, run_recorder, service_host
from rehearsal.machines.real.broker import RabbitServer
from rehearsal.machines.real.commands import kill_all
from rehearsal.results.serving import Sample, Served
from userdata.agent.work.service import queue

PACE: Final = 60.0
"""Simulated seconds for each real second."""
HOURS: Final = 1.25
WARM_UP_TICKS: Final = 10
NOTICE: Final = 0.6
"""Share of interruptions with a notice; short runs should show both kinds."""
RATE: Final = 40.0
"""Requests for each real second."""
_COMMAND: Final = "spot-work"
_ENDS_IN: Final = 60.0
"""Real seconds that a worker gets to end after the rehearsal, even on a slow machine."""
_FIRST, _EVERY, _CLOSED = 14, 18, 6
"""Minute of the first closing of a zone, minutes between two closings, and minutes of each."""
_ALL_AT: Final = 2
"""Index of the closing at which all zones close: On-Demand replaces Spot."""


def rotate_closures(zones: tuple[str, ...], hours: float) -> tuple[PoolTrace, ...]:
    """Return the scripted market: every 18 minutes a zone closes for 6, once all zones together."""
    names = sorted(zones)
    minutes = round(hours * 60)
    open_ = {name: [1] * minutes for name in names}
    for number, at in enumerate(range(_FIRST, minutes, _EVERY)):
        closed = names if number == _ALL_AT else [names[number % len(names)]]
        for name in closed:
            for minute in range(at, min(at + _CLOSED, minutes)):
                open_[name][minute] = 0
    return tuple(PoolTrace(name, TICK_SECONDS, tuple(open_[name])) for name in names)


def record_runs(command: tuple[str, ...]) -> tuple[list[str], str]:
    """Return a worker's command with the run recorder as its function, and the original function's name.

    Raises ``LocalCloudError`` for a command that is not ``spot-work MODULE:FUNCTION …``.
    """
    if len(command) < 2 or command[0] != _COMMAND or ":" not in command[1] or "--requests" in command:
        raise LocalCloudError(
            f"command is {' '.join(command) or 'empty'}, allowed with --service: "
            f"{_COMMAND} MODULE:FUNCTION … without --requests"
        )
    return [
        command[0],
        f"{run_recorder.__name__}:{run_recorder.run.__name__}",
        *command[2:],
        "--requests",
    ], command[1]


@dataclass(slots=True)
class _Host:
    """The process of an instance; ``at`` is its start in simulated epoch seconds."""

    at: float
    slots: int
    directory: Path
    process: subprocess.Popen[str] | None = None
    is_noticed: bool = False


class RealService:
    """The processes of a service's instances and of its load client, on one broker."""

    def __init__(self, service: Service, code: Path, folder: Path, broker: RabbitServer) -> None:
        assert service.queue is not None
        command, function = record_runs(service.command)
        self._folder = folder
        self._command = service.command
        self._record = folder / "runs"
        self._status = folder / "asked"
        self._host_config = service_host.ServiceHostConfig(
            command=command,
            environment={
                **service.environment,
                run_recorder.FUNCTION: function,
                run_recorder.RECORD: str(self._record),
                # One thread for each worker: all share few cores.
                "OPENBLAS_NUM_THREADS": "1",
            },
            secrets=queue.environment(service.queue, broker.url),
            slots=0,
            directory="",
        )
        package_root = str(Path(load_client.__file__).parents[2])
        paths = [package_root, *filter(None, [os.environ.get("PYTHONPATH")])]
        self._environment = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ.get('PATH', os.defpath)}",
            "PYTHONPATH": os.pathsep.join(paths),
        }
        self._code = code
        self._hosts: dict[str, _Host] = {}
        self._leaving: list[_Host] = []
        self._booted = self._drained = self._overdue = self._killed = 0
        self._samples: list[Sample] = []
        self._start = self._now = 0.0
        self._polled_at = time.perf_counter()
        arguments = [service.queue.name, f"{RATE:g}", str(self._status)]
        self._client = self._spawn("asker", [load_client.__name__, *arguments], self._host_config.secrets)

    def begin(self, now: float) -> None:
        """Start time at ``now`` (simulated epoch seconds)."""
        self._start = self._now = now
        self._polled_at = time.perf_counter()

    def advance(self, now: float) -> None:
        """Wait until simulated time is ``now``; start instances that are due, and record a sample."""
        due_at = self._polled_at + (now - self._now) / PACE
        time.sleep(max(due_at - time.perf_counter(), 0.0))
        self._now, self._polled_at = now, time.perf_counter()
        for instance, host in self._hosts.items():
            if host.process is None and host.at <= now:
                self._boot(instance, host)
        self._leaving = [host for host in self._leaving if not self._has_left(host)]
        if self._client.poll() is not None:
            raise LocalCloudError(f"the load client has ended: {self._last_output('asker')}")
        workers = sum(self._hosts[instance_id].slots for instance_id in self.working())
        tick = round((now - self._start) / TICK_SECONDS)
        self._samples.append(Sample(tick, load_client.read(self._status).waiting, workers))

    def launch(self, instance: str, slots: int, at: float) -> None:
        """Add an instance that starts ``at``."""
        self._booted += 1  # an id can return from the warm pool
        self._hosts[instance] = _Host(at, slots, self._folder / f"{instance}-{self._booted}")

    def working(self) -> set[str]:
        """Return the instances whose workers are all ready and not draining."""
        return {
            instance
            for instance, host in self._hosts.items()
            if host.process is not None
            and host.process.poll() is None
            and service_host.are_ready(host.directory, service_host.worker_slots(host.slots))
        }

    def notice(self, instance: str, kind: str, seconds: float, drain: float) -> None:
        """Send a notice to an instance that ends in so many simulated seconds; its agent drains it."""
        host = self._hosts[instance]
        if host.process is None:
            host.at = math.inf  # interrupted before its boot: it never starts
        if host.process is None or host.is_noticed:
            return
        host.is_noticed = True
        self._send_line(host, {"kind": kind, "seconds": seconds / PACE, "drain": drain / PACE})

    def release(self, instance: str, seconds: float) -> None:
        """Remove an instance from the group: its agent drains it within so many simulated seconds."""
        if instance not in self._hosts:
            return  # already interrupted
        self.notice(instance, "lifecycle", seconds, seconds)
        self._leaving.append(self._hosts.pop(instance))

    def end(self, instance: str) -> None:
        """Kill an instance with all its processes."""
        host = self._hosts.pop(instance, None)
        if host is None or host.process is None:
            return
        if host.process.poll() is None:
            kill_all(host.process.pid)
            self._overdue += host.slots * host.is_noticed
            self._killed += host.slots * (not host.is_noticed)
        else:
            self._drained += host.slots
        self._close(host)

    def finish(self) -> Served:
        """Wait until every request is answered or lost, drain all workers, and return the counts."""
        self._client.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._client.wait(2 * load_client.TIMEOUT_SECONDS)
        self._wait_for_leaving()
        drained, overdue, killed = self._drained, self._overdue, self._killed
        for instance in list(self._hosts):  # not counted as interruptions
            self.release(instance, _ENDS_IN * PACE)
        self._wait_for_leaving()
        status, runs = load_client.read(self._status), run_recorder.read(self._record)
        return Served(
            command=self._command,
            pace=PACE,
            requests=status.requests,
            answered=status.answered,
            lost=status.requests - status.answered,
            unmarked_duplicates=runs.unmarked_duplicates,
            run_again=runs.repeated,
            came_back=runs.came_back,
            longest_wait=status.longest_wait,
            mean_wait=status.waited / max(status.answered + status.lost, 1),
            drained=drained,
            overdue=overdue,
            killed=killed,
            samples=tuple(self._samples),
        )

    def _wait_for_leaving(self) -> None:
        end = time.perf_counter() + _ENDS_IN
        while self._leaving and time.perf_counter() < end:
            self._leaving = [host for host in self._leaving if not self._has_left(host)]
            time.sleep(0.02)

    def close(self) -> None:
        """Kill all processes that still run."""
        for host in [*self._hosts.values(), *self._leaving]:
            if host.process is not None and host.process.poll() is None:
                kill_all(host.process.pid)
            self._close(host)
        if self._client.poll() is None:
            self._client.kill()
        self._client.wait()

    def _boot(self, instance: str, host: _Host) -> None:
        host.directory.mkdir()
        host.process = self._spawn("workers", [service_host.__name__], {})
        self._send_line(
            host, asdict(self._host_config) | {"slots": host.slots, "directory": str(host.directory)}
        )

    def _send_line(self, host: _Host, line: object) -> None:
        assert host.process is not None
        assert host.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # the process has ended
            host.process.stdin.write(f"{json.dumps(line)}\n")
            host.process.stdin.flush()

    def _has_left(self, host: _Host) -> bool:
        if host.process is not None:
            if host.process.poll() is None:
                return False
            self._drained += host.slots
        self._close(host)
        return True

    def _close(self, host: _Host) -> None:
        if host.process is not None:
            host.process.wait()
            with contextlib.suppress(BrokenPipeError):
                if host.process.stdin is not None:
                    host.process.stdin.close()
        shutil.rmtree(host.directory, ignore_errors=True)

    def _spawn(self, name: str, module: Sequence[str], more: Mapping[str, str]) -> subprocess.Popen[str]:
        with self._log(name).open("ab") as output:
            return subprocess.Popen(  # noqa: S603
                [sys.executable, "-m", *module],
                cwd=self._code,
                env={**self._environment, **more},
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                text=True,
                start_new_session=True,  # Ctrl-C must not reach it; `close` ends it
            )

    def _log(self, name: str) -> Path:
        return self._folder / f"{name}.log"

    def _last_output(self, name: str) -> str:
        lines = self._log(name).read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "no output"


@contextlib.contextmanager
def real_service(service: Service | None, code: Path) -> Iterator[RealService]:
    """Start a broker and a load client; the workers' code is in the folder ``code``.

    Raises ``LocalCloudError`` if no broker is installed, and for a service without a queue.
    """
    if service is None or service.queue is None:
        raise LocalCloudError("the group has no queue, allowed with --service: a service with a queue")
    with tempfile.TemporaryDirectory(prefix="gpu-spot-service-", ignore_cleanup_errors=True) as temporary:
        folder = Path(temporary)
        (folder / "broker").mkdir()
        broker = RabbitServer(folder / "broker")
        try:
            broker.start()
            with contextlib.closing(RealService(service, code, folder, broker)) as running:
                yield running
        finally:
            broker.remove()
