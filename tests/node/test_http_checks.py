"""HTTP workers under the agent: port, readiness, the answers to proxies, and a drain that ends no request."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from contracts.agent.config import HttpProxy, HttpWorkers
from tests.node.configs import FakeClock
from tests.node.workbench import Bench
from tests.served import Handler, served
from tests.waiting import wait_until
from userdata.agent.proxy import haproxy_config
from userdata.agent.work import notice
from userdata.agent.work.notice import Notice
from userdata.agent.work.service.http_checks import (
    DRAIN,
    PROXY_SECONDS,
    READY,
    SEEN_SECONDS,
    HttpChecks,
    open_connections,
)

WAITS = "trap 'echo term; exit' TERM; echo port $PORT $GPU_SPOT_PORT; while :; do sleep 0.05; done"


class FakeWorker(Handler):
    status = 503

    def respond(self, body: bytes) -> None:
        page = b"" if self.status == 204 else bytes(100_000)  # longer than what is read of it
        self.answer(self.status if self.path == "/ready" else 404, page)


@pytest.fixture
def worker_port() -> Iterator[int]:
    """A server that stands for the worker in slot 0; it is not ready."""
    FakeWorker.status = 503
    with served(FakeWorker) as port:
        yield port


def checks_of(
    clock: FakeClock, port: int = 8000, connections: Callable[[int], int] = lambda port: 0
) -> HttpChecks:
    return HttpChecks(HttpWorkers(port, "/ready"), [0, 1], clock, connections=connections)


def test_a_worker_takes_requests_from_its_own_readiness_until_it_drains(
    clock: FakeClock, worker_port: int
) -> None:
    checks = checks_of(clock, worker_port)
    checks.record_start(0)
    checks.probe_once()
    assert (checks.respond("0"), checks.is_ready(0)) == (DRAIN, False)
    for FakeWorker.status in (204, 200):
        checks.probe_once()
        assert (checks.respond("0"), checks.is_ready(0)) == (READY, True)
    assert [checks.respond(line) for line in ("1", "7", "", "x", "-1")] == [DRAIN] * 5
    checks.drain(0)
    assert checks.respond("0") == DRAIN
    checks.record_start(0)  # another process: its readiness is unknown
    assert checks.respond("0") == DRAIN
    checks.probe_once()
    assert checks.respond("0") == READY
    checks.record_end(0)
    assert checks.respond("0") == DRAIN


def test_it_is_drained_when_the_proxies_have_seen_it_and_no_request_is_in_flight(clock: FakeClock) -> None:
    open_now = {8001: 2}
    checks = checks_of(clock, connections=open_now.__getitem__)
    checks.record_start(1)
    assert not checks.is_drained(1)
    checks.drain(1)
    clock.advance(3)
    assert not checks.is_drained(1)
    open_now[8001] = 0
    assert checks.is_drained(1)
    checks.record_start(1)
    checks.drain(1)
    assert not checks.is_drained(1)  # a proxy may not have asked yet


def test_a_worker_ends_only_once_a_proxy_that_asks_late_has_seen_the_drain(
    clock: FakeClock, worker_port: int
) -> None:
    checks = checks_of(clock, worker_port, connections=lambda port: 0)
    FakeWorker.status = 204
    checks.record_start(0)
    checks.probe_once()
    assert [checks.respond("0", proxy) for proxy in ("10.0.0.1", "10.0.0.2")] == [READY, READY]
    checks.drain(0)
    clock.advance(SEEN_SECONDS)
    assert checks.respond("0", "10.0.0.1") == DRAIN
    assert not checks.is_drained(0)
    checks.respond("0", "10.0.0.2")
    assert checks.is_drained(0)


def test_a_proxy_that_is_gone_delays_no_drain_for_long(clock: FakeClock, worker_port: int) -> None:
    checks = checks_of(clock, worker_port, connections=lambda port: 0)
    FakeWorker.status = 204
    checks.record_start(0)
    checks.probe_once()
    checks.respond("0", "10.0.0.1")
    checks.drain(0)
    clock.advance(PROXY_SECONDS - 1)
    assert not checks.is_drained(0)
    clock.advance(1)
    assert checks.is_drained(0)


def test_connections_to_a_port_are_counted_until_they_close() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert open_connections(port) == 0
        with socket.create_connection(("127.0.0.1", port)), server.accept()[0]:
            assert open_connections(port) == 1
            assert open_connections(port, "127.0.0.1") == 1
            assert open_connections(port, "127.0.0.2") == 0
        wait_until(lambda: open_connections(port) == 0)


def test_proxies_are_answered_on_the_check_port(clock: FakeClock) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    checks = HttpChecks(HttpWorkers(8000, check_port=port), [0], clock, "127.0.0.1")
    checks.serve()
    try:
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.sendall(b"0\n")
            assert connection.makefile().read() == f"{DRAIN}\n"
    finally:
        checks.close()


def test_a_readiness_may_take_as_long_as_a_proxys_check_and_delays_no_other_worker(
    clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, is_answered = set[float](), threading.Event()

    def request(address: tuple[str, int], *more: Any, may_be_long: bool) -> tuple[int, dict[str, str], str]:
        asked.add(more[-1])
        return 200 if address[1] == 8001 or is_answered.wait(10.0) else 503, {}, ""

    monkeypatch.setattr("userdata.agent.aws.plain_http.request", request)
    checks = HttpChecks(workers := HttpWorkers(8000, check_port=0), [0, 1], clock, "127.0.0.1")
    checks.record_start(0)
    checks.record_start(1)
    checks.serve()
    wait_until(lambda: checks.is_ready(1))
    assert not checks.is_ready(0)
    is_answered.set()
    wait_until(lambda: checks.is_ready(0))
    checks.close()
    text = haproxy_config.render(HttpProxy(workers), haproxy_config.Paths(Path("socket"), Path("map")))
    assert [f"  timeout check {seconds}s" in text.splitlines() for seconds in asked] == [True]


def noticed(workbench: Bench, connections: Callable[[int], int]) -> tuple[Any, Any]:
    workbench.http = checks_of(workbench.clock, connections=connections)
    workers = workbench.workers(WAITS, count=1)
    workers.tick()
    output = workbench.processes[0].stdout
    assert output.readline() == b"port 8000 8000\n"
    now = workbench.clock.wall()
    notice.write(workbench.tmp, Notice("spot", "terminate", "t", now + 120, now, now))
    workers.stop()
    workers.tick()
    return workers, output


def test_a_noticed_worker_gets_sigterm_once_its_requests_have_ended(workbench: Bench) -> None:
    open_now = [1]
    workers, output = noticed(workbench, lambda port: open_now[0])
    assert workbench.http.respond("0") == DRAIN
    workbench.clock.advance(60)
    assert workers.tick()
    assert workbench.processes[0].poll() is None
    open_now[0] = 0
    wait_until(lambda: not workers.tick())
    assert output.readline() == b"term\n"


def test_a_request_that_never_ends_is_cut_shortly_before_the_deadline(workbench: Bench) -> None:
    workers, output = noticed(workbench, lambda port: 1)
    workbench.clock.advance(104)  # 10 before the deadline it is killed, 5 before that it gets SIGTERM
    assert workers.tick()
    assert workbench.processes[0].poll() is None
    workbench.clock.advance(2)
    wait_until(lambda: not workers.tick())
    assert output.readline() == b"term\n"


def test_a_requested_restart_waits_for_the_requests_and_is_requested_once(workbench: Bench) -> None:
    open_now = [1]
    workbench.http = checks_of(workbench.clock, connections=lambda port: open_now[0])
    workbench.http.probe_once = lambda: None  # type: ignore[method-assign]
    workers = workbench.workers(WAITS, count=1)
    workers.tick()
    workbench.http._slots[0].is_ready = True
    workbench.tick_after(11, workers)
    workbench.registry.restarts_requested = {0}
    workbench.tick_after(11, workers)
    assert workbench.http.respond("0") == DRAIN
    workbench.tick_after(11, workers)
    assert workbench.processes[0].poll() is None
    open_now[0] = 0
    wait_until(lambda: (workers.tick(), len(workbench.processes) == 2)[1])
    assert workbench.http.respond("0") == DRAIN  # until the new one is ready
    workers.stop()
    workers.tick()
    workbench.clock.advance(4)
    wait_until(lambda: not workers.tick())


def test_no_file_makes_an_http_worker_ready(workbench: Bench, tmp_path: Path) -> None:
    workbench.http = checks_of(workbench.clock)
    workers = workbench.workers(WAITS, count=1)
    workers.tick()
    assert not workbench.registry.heartbeats
    workers.stop()
    workers.tick()
    workbench.clock.advance(4)
    wait_until(lambda: not workers.tick())
