"""Supervisor of HAProxy's server table and counts: samples each second, the rest each ten."""

from __future__ import annotations

import statistics as mean
from collections import deque
from collections.abc import Callable
from typing import Final

from contracts.agent.config import HttpProxy
from contracts.registry.proxy_state import WRITE_SECONDS, ProxyState
from userdata.agent.machine import log
from userdata.agent.machine.background import BackgroundPoller, BackgroundRunner, Guard
from userdata.agent.machine.clock import Clock
from userdata.agent.proxy import haproxy_config, servers
from userdata.agent.proxy.counts import Counts, WorkerKey
from userdata.agent.proxy.discovery import Discovery, HttpHost
from userdata.agent.proxy.haproxy_config import BACKEND, FILLED_KEY, RETRY_AFTER_KEY, Paths
from userdata.agent.proxy.runtime import RuntimeSocket, ServerState, Statistics

SAMPLE_SECONDS: Final = 1.0
DISCOVER_SECONDS: Final = 10.0
_CALL_SECONDS: Final = 120.0
"""Time limit of a query or write in AWS with all its retries."""
_BOOTS: Final = 5
"""Boots whose median is the expected one."""
_MAX_RETRY_AFTER_SECONDS: Final = 3600


class ProxySupervisor:
    """Keeps HAProxy's servers those of the discovered hosts; `run` returns after `stop`.

    Args:
        proxy: the settings.
        paths: the files that are shared with HAProxy.
        discover: returns the workers' hosts.
        write: stores a state, and its metrics.
        clock: wall and monotonic time.
        run_in_background: runs ``discover`` and ``write``, which may take seconds.
        discover_seconds: interval of ``discover``.
        runtime: HAProxy's socket; None: that of ``paths``.
    """

    def __init__(
        self,
        proxy: HttpProxy,
        paths: Paths,
        discover: Discovery,
        write: Callable[[ProxyState, int], None],
        clock: Clock,
        run_in_background: BackgroundRunner,
        discover_seconds: float = DISCOVER_SECONDS,
        runtime: RuntimeSocket | None = None,
    ) -> None:
        self._proxy = proxy
        self._paths = paths
        self._socket = runtime or RuntimeSocket(paths.socket)
        self._clock = clock
        self._discover = BackgroundPoller(
            "discovery", discover, run_in_background, clock, _CALL_SECONDS, discover_seconds
        )
        self._write = BackgroundPoller(
            "state", lambda: self._store(write), run_in_background, clock, _CALL_SECONDS, WRITE_SECONDS
        )
        self._hosts: tuple[HttpHost, ...] | None = None
        self._counts = Counts(clock.wall())
        self._process = ""
        self._is_filled = False
        self._state: tuple[ProxyState, int] | None = None
        self._boots: deque[float] = deque(maxlen=_BOOTS)
        self._booting: set[str] = set()
        self._retry_after = proxy.retry_after_seconds
        self._signs: dict[str, tuple[tuple[int, int], float]] = {}
        self._lacks_rows = False
        self._is_stopping = False
        self._guard = Guard(clock)

    @property
    def state(self) -> ProxyState | None:
        """The state at the last sample; None before the first."""
        return self._state[0] if self._state else None

    def stop(self) -> None:
        """End `run`; safe in a signal handler. HAProxy serves on."""
        self._is_stopping = True

    def run(self) -> None:
        """Tick each second until `stop`."""
        while not self._is_stopping:
            self.tick()
            self._clock.sleep(SAMPLE_SECONDS)

    def tick(self) -> None:
        """Run one pass; failures of HAProxy and AWS are logged, and the next pass tries again."""
        self._poll_discovery()
        self._guard.run("haproxy", self._observe, postpones=False)
        self._poll_write()

    def _poll_discovery(self) -> None:
        """Read the hosts when due; while they are unknown the last ones are used."""
        hosts = self._discover.take()
        self._hosts = self._hosts if hosts is None else hosts

    def _observe(self) -> None:
        """Sample HAProxy's statistics and bring its table to the hosts."""
        process = self._socket.process()
        if process != self._process:
            log.info("HAProxy has started", process=process)
            self._process, self._counts, self._booting = process, Counts(self._clock.wall()), set()
            self._retry_after, self._is_filled = self._proxy.retry_after_seconds, False
        table, statistics = self._socket.servers(), self._socket.statistics()
        if self._hosts is not None:
            self._fill(table, statistics, self._hosts)
        workers = self._workers(table)
        self._counts.sample(self._clock.wall(), statistics, workers)
        self._learn_boot_time(statistics, workers)
        self._take_waiting(statistics)
        self._keep_busy(statistics)
        ready = sum(line.is_up for name, line in statistics.servers.items() if name in workers)
        state = self._counts.state()
        self._state = None if state is None else (state, ready)

    def _fill(self, table: list[ServerState], statistics: Statistics, hosts: tuple[HttpHost, ...]) -> None:
        """Bring HAProxy's table to the hosts; the proxy is healthy from then on."""
        in_flight = {name: line.in_flight for name, line in statistics.servers.items()}
        addresses = {host.address for host in hosts}
        slots, rows = self._proxy.max_slots, haproxy_config.rows(self._proxy)
        planned = servers.plan(table, in_flight, addresses, rows, slots)
        for command in planned.commands:
            self._socket.change(command)
        if planned.without_row and not self._lacks_rows:
            log.error("hosts without a row get no requests", hosts=planned.without_row, rows=rows)
        self._lacks_rows = bool(planned.without_row)
        if not self._is_filled:
            self._set_value(FILLED_KEY, 1)
            self._is_filled = True

    def _set_value(self, key: str, value: int) -> None:
        self._socket.change(f"set map {self._paths.values} {key} {value}")

    def _workers(self, table: list[ServerState]) -> dict[str, WorkerKey]:
        """Return the workers behind the servers in use."""
        names = {host.address: host.name for host in self._hosts or ()}
        return {
            server.name: WorkerKey(names[server.address], int(server.name[1:].partition("-")[0]))
            for server in table
            if not server.is_disabled and server.address in names
        }

    def _take_waiting(self, statistics: Statistics) -> None:
        """Make HAProxy look at its queue: a server that ends draining takes nothing from it by itself.

        Setting ``maxconn``, to the same value, does. Tried with HAProxy 2.6.
        """
        if not statistics.waiting:
            return
        limit = haproxy_config.concurrency(self._proxy)
        for line in statistics.servers.values():
            if line.is_up and line.in_flight < limit:
                self._socket.change(f"set maxconn server {BACKEND}/{line.name} {limit}")

    def _keep_busy(self, statistics: Statistics) -> None:
        """Keep workers in service that answer no check because they work: a full server is full, not down.

        One with a request has until ``idle_timeout_seconds`` after its last sign of life: a response, a
        byte of one, an answered check. Then its requests get 504, and its checks take it out.
        """
        now = self._clock.monotonic()
        for name, line in statistics.servers.items():
            sign = (line.responses, line.received)
            if not line.is_silent or self._signs.get(name, (None, 0.0))[0] != sign:
                self._signs[name] = sign, now
            elif (
                line.is_weakened
                and line.in_flight
                and now - self._signs[name][1] < self._proxy.idle_timeout_seconds
            ):
                self._socket.change(f"set server {BACKEND}/{name} health up")

    def _learn_boot_time(self, statistics: Statistics, workers: dict[str, WorkerKey]) -> None:
        """Measure launch to first readiness of hosts that were seen before they were ready.

        The median of the last boots is what a caller that meets no worker is asked to wait.
        """
        up = {key.instance for name, key in workers.items() if statistics.servers[name].is_up}
        launched = {host.name: host.launched_at for host in self._hosts or () if host.launched_at is not None}
        for name in sorted(self._booting & up & launched.keys()):
            self._boots.append(max(self._clock.wall() - launched[name], 1.0))
            log.info("worker ready", instance=name, seconds=round(self._boots[-1]))
        observed = {key.instance for key in workers.values()}
        not_up = {name for name in observed - up if not self._is_known_up(name)}
        self._booting = ((self._booting - up) | not_up) & launched.keys()
        if not self._boots:
            return
        seconds = min(round(mean.median(self._boots)), _MAX_RETRY_AFTER_SECONDS)
        if seconds != self._retry_after:
            self._set_value(RETRY_AFTER_KEY, seconds)
            self._retry_after = seconds

    def _is_known_up(self, instance: str) -> bool:
        return any(
            self._counts.is_known_up(WorkerKey(instance, slot)) for slot in range(self._proxy.max_slots)
        )

    def _poll_write(self) -> None:
        """Store the state when due; a failure is tried again at the next interval."""
        if self._state is not None:
            self._write.take()

    def _store(self, write: Callable[[ProxyState, int], None]) -> bool:
        state = self._state
        if state is not None:
            write(*state)
        return True
