"""The market's script, and one run of it: hosts come and go, callers send, all is counted."""

from __future__ import annotations

import contextlib
import random
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from contracts.agent.config import HttpProxy, HttpWorkers
from contracts.group.release import WorkerRelease
from contracts.registry.proxy_state import ProxyState
from pulumi_on_moto.errors import LocalCloudError
from tests.real.http_play import load_client
from tests.real.http_play.hosts import HttpHosts, PlayClock
from tests.real.http_play.load_client import LoadConfig, Record
from tests.real.http_play.proxies import RealProxy

SERVER: Final = Path(__file__).parents[3] / "examples" / "http-service" / "server.py"
WORKER_PORT, _CHECK_PORT, _PROXY_PORT = 8000, 8900, 8080
_NETWORKS: Final = tuple(f"127.0.{number}" for number in range(77, 97))
_PROXIES: Final = (251, 252)
_TAKEN: Final = 254
"""The address of a network at which the world that has it listens."""
_READY_WITHIN: Final = 60.0
_POLL_SECONDS: Final = 0.05
_NEAR_SECONDS: Final = 2.0
"""Time after a host's end in which a failure is one of that end."""


@dataclass(frozen=True)
class HttpScript:
    hosts: int = 4
    seconds: float = 60.0
    rate: float = 60.0
    interval: float = 5.0
    notice_share: float = 0.6
    notice_seconds: float = 8.0
    tokens: int = 10
    token_seconds: float = 0.01
    concurrency: int = 16
    seed: int = 1
    command: tuple[str, ...] = (sys.executable, str(SERVER))
    is_grpc: bool = False
    pace: float = 1.0
    variables: tuple[tuple[str, str], ...] = ()
    idle_timeout: int = 30
    gpus: int = 1

    @property
    def release(self) -> WorkerRelease:
        return WorkerRelease(command=self.command)


class Interruption(NamedTuple):
    """An interruption at ``at`` (epoch seconds), with a notice or without; ``ends`` is the host's end."""

    at: float
    ends: float
    has_notice: bool


@dataclass
class HttpOutcome:
    """What happened: each request, each interruption, the proxies' last states, and hosts in time."""

    script: HttpScript
    began: float
    records: list[Record] = field(default_factory=list)
    interruptions: list[Interruption] = field(default_factory=list)
    states: list[ProxyState] = field(default_factory=list)
    ready: list[tuple[float, int]] = field(default_factory=list)
    overdue: int = 0

    def failed(self, *, repeatable: bool | None = None) -> list[Record]:
        """Return the failed requests: all, the repeatable ones, or the others."""
        failures = [record for record in self.records if record.error]
        return [record for record in failures if repeatable in (None, record.is_repeatable)]


class HttpWorld:
    """Proxies and hosts of one service, at addresses of a loopback network that no other world has."""

    def __init__(self, script: HttpScript, folder: Path, network: str) -> None:
        workers = HttpWorkers(WORKER_PORT, check_port=_CHECK_PORT, is_grpc=script.is_grpc)
        variables = {
            "TOKEN_SECONDS": str(script.token_seconds),
            "RUNS": str(folder / "runs"),
            **dict(script.variables),
        }
        self.clock = PlayClock(script.pace)
        self.hosts = HttpHosts(folder, variables, workers, self.clock, network, script.gpus)
        settings = HttpProxy(
            workers,
            is_grpc=script.is_grpc,
            listen_port=_PROXY_PORT,
            max_workers=2 * script.hosts,
            concurrency=script.concurrency,
            proxies=len(_PROXIES),
            idle_timeout_seconds=script.idle_timeout,
        )
        self.proxies = []
        for address in (f"{network}.{number}" for number in _PROXIES):
            proxy = RealProxy(
                settings, address, folder / f"proxy-{address}", self.hosts.listed, self.clock, script.pace
            )
            self.proxies.append(proxy)

    @property
    def ready(self) -> int:
        """Workers that all proxies send requests to."""
        return min(proxy.count_ready() for proxy in self.proxies)

    def wait_ready(self, count: int) -> None:
        """Wait until so many workers are ready; raise ``LocalCloudError`` after a minute."""
        end = time.monotonic() + _READY_WITHIN
        while self.ready < count:
            if time.monotonic() > end:
                raise LocalCloudError(f"{self.ready} of {count} workers are ready after {_READY_WITHIN:g} s")
            time.sleep(_POLL_SECONDS)

    def close(self) -> None:
        for proxy in self.proxies:
            proxy.close()
        self.hosts.close()


@contextlib.contextmanager
def _own_network() -> Iterator[str]:
    """Yield a network that no other process has taken: tests' processes run worlds at the same time."""
    with socket.socket() as taken:
        for network in _NETWORKS:
            with contextlib.suppress(OSError):
                taken.bind((f"{network}.{_TAKEN}", _PROXY_PORT))
                break
        else:
            raise LocalCloudError(f"all {len(_NETWORKS)} loopback networks of the worlds are taken")
        yield network


@contextlib.contextmanager
def world(script: HttpScript) -> Iterator[tuple[HttpWorld, Path]]:
    """Start proxies and hosts; yield them, ready, and their folder."""
    with (
        tempfile.TemporaryDirectory(prefix="gpu-spot-http-", ignore_cleanup_errors=True) as name,
        _own_network() as network,
        contextlib.closing(HttpWorld(script, Path(name), network)) as running,
    ):
        for _ in range(script.hosts):
            running.hosts.launch(script.release)
        running.wait_ready(script.hosts)
        yield running, Path(name)


@contextlib.contextmanager
def load(config: LoadConfig, out: Path) -> Iterator[None]:
    """Run callers while the block runs, and until each has its reply."""
    command = [sys.executable, "-m", load_client.__name__, load_client.dump(config), str(out)]
    callers = subprocess.Popen(command, stdin=subprocess.PIPE)
    assert callers.stdin is not None
    try:
        yield
        callers.stdin.close()
        if callers.wait(2 * load_client.TIMEOUT_SECONDS):
            raise LocalCloudError("the callers' process has failed")
    finally:
        callers.kill()
        callers.wait()
        callers.stdin.close()


def run(script: HttpScript, on_progress: Callable[[HttpOutcome], None] = lambda outcome: None) -> HttpOutcome:
    """Run a script; ``on_progress`` is called about ten times a second."""
    with world(script) as (running, folder):
        config = LoadConfig(
            [proxy.address for proxy in running.proxies], script.rate, script.tokens, script.seed
        )
        outcome = HttpOutcome(script, time.time())
        with load(config, folder / "requests"):
            _Market(script, running.hosts, outcome).play(lambda: _observe(running, outcome, on_progress))
        outcome.records = list(load_client.read(folder / "requests"))
        outcome.states = [proxy.state() for proxy in running.proxies]
        return outcome


def _observe(running: HttpWorld, outcome: HttpOutcome, on_progress: Callable[[HttpOutcome], None]) -> None:
    outcome.ready.append((time.time(), running.ready))
    on_progress(outcome)


class _Market:
    """Interrupts hosts at random; a replacement is launched with each notice, as the controller does."""

    def __init__(self, script: HttpScript, hosts: HttpHosts, outcome: HttpOutcome) -> None:
        self._script = script
        self._hosts = hosts
        self._outcome = outcome
        self._random = random.Random(script.seed)
        self._ending: dict[str, float] = {}

    def play(self, observe: Callable[[], None]) -> None:
        """Interrupt until the script's end, then wait for the last deadlines."""
        started = time.monotonic()
        number = 1
        while (now := time.monotonic() - started) < self._script.seconds or self._ending:
            is_over = now >= self._script.seconds
            if self._script.interval and not is_over and now >= number * self._script.interval:
                number += 1
                self._interrupt()
            self._end_hosts()
            observe()
            time.sleep(_POLL_SECONDS)

    def _interrupt(self) -> None:
        candidates = [name for name in self._hosts.names() if name not in self._ending]
        name = self._random.choice(candidates)
        has_notice = self._random.random() < self._script.notice_share
        now = time.time()
        ends = now + (self._script.notice_seconds if has_notice else 0.0)
        self._outcome.interruptions.append(Interruption(now, ends, has_notice))
        if has_notice:
            self._hosts.notice(name, self._script.notice_seconds)
            self._ending[name] = ends
        else:
            self._hosts.end(name)
        self._hosts.launch(self._script.release)

    def _end_hosts(self) -> None:
        for name, ends in list(self._ending.items()):
            if time.time() >= ends:
                self._outcome.overdue += not self._hosts.has_drained(name)
                self._hosts.end(name)
                del self._ending[name]


def quantile(values: Iterable[float], share: float) -> float:
    """Return a quantile of values; 0 of none."""
    ordered = sorted(values)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)] if ordered else 0.0


def is_by_death(record: Record, interruptions: Sequence[Interruption]) -> bool:
    """Return whether a host that had no notice ended during a request, or just before its end."""
    ended = record.at + record.last
    return any(
        not interruption.has_notice and record.at - _NEAR_SECONDS <= interruption.ends <= ended
        for interruption in interruptions
    )


def summarise(outcome: HttpOutcome) -> dict[str, Any]:
    """Return the counts: failures without a death near are those with notice."""
    failures = outcome.failed()
    by_death = [record for record in failures if is_by_death(record, outcome.interruptions)]
    served = [record.last for record in outcome.records if not record.error]
    noticed = sum(interruption.has_notice for interruption in outcome.interruptions)
    return {
        "requests": len(outcome.records),
        "streamed": sum(record.kind == "stream" for record in outcome.records),
        "interruptions": len(outcome.interruptions),
        "with_notice": noticed,
        "without_notice": len(outcome.interruptions) - noticed,
        "overdue": outcome.overdue,
        "failed_with_notice": len(failures) - len(by_death),
        "failed_repeatable": sum(record.is_repeatable for record in by_death),
        "failed_other": sum(not record.is_repeatable for record in by_death),
        "repeated": sum(state.repeated for state in outcome.states),
        "p50_ms": round(1000 * quantile(served, 0.5), 1),
        "p99_ms": round(1000 * quantile(served, 0.99), 1),
    }
