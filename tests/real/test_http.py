"""An HTTP service with Debian's HAProxy, real workers and callers: what callers notice of interruptions."""

from __future__ import annotations

import contextlib
import http.client
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from contracts.agent.config import HttpProxy
from contracts.names import PROXY_HEALTH_PATH
from lambdas.core.rollout.step import ROLLED_BACK
from tests.real import http_plays
from tests.real.http_play import load_client, play, rollout
from tests.real.http_play.load_client import LoadConfig
from tests.real.http_play.play import HttpScript, HttpWorld
from tests.waiting import wait_until

SCRIPT = HttpScript(hosts=3, token_seconds=0.02, concurrency=4)


@pytest.fixture
def world() -> Iterator[tuple[HttpWorld, Path]]:
    with play.world(SCRIPT) as running:
        yield running


def get(world: HttpWorld, path: str, port: int | None = None) -> http.client.HTTPResponse:
    address, listen_port = world.proxies[0].address
    with contextlib.closing(
        http.client.HTTPConnection(address, port or listen_port, timeout=30)
    ) as connection:
        connection.request("GET", path)
        response = connection.getresponse()
        response.read()
        return response


MODEL_SERVER = """
import http.server, os
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Gpus", os.environ["CUDA_VISIBLE_DEVICES"])
        self.send_header("Content-Length", "0")
        self.end_headers()
http.server.ThreadingHTTPServer((os.environ["ADDRESS"], int(os.environ["PORT"])), Handler).serve_forever()
"""


def test_a_server_on_two_gpus_answers_through_the_proxies() -> None:
    with play.world(HttpScript(2, command=(sys.executable, "-c", MODEL_SERVER), gpus=2)) as (running, _):
        assert {get(running, "/v1/models").getheader("Gpus") for _ in range(20)} == {"0,1"}


def test_callers_notice_no_notice_and_of_a_death_only_what_must_not_be_repeated(
    world: tuple[HttpWorld, Path],
) -> None:
    running, folder = world
    hosts, out = running.hosts, folder / "requests"
    config = LoadConfig([proxy.address for proxy in running.proxies], rate=40, tokens=10)
    states = [proxy.state() for proxy in running.proxies]
    with play.load(config, out):
        time.sleep(0.5)
        [noticed, dies, *_] = hosts.names()
        hosts.notice(noticed, 30.0)
        hosts.launch(SCRIPT.release)
        time.sleep(0.5)
        died_at = time.time()
        hosts.end(dies)
        dead_at = time.time()
        wait_until(lambda: hosts.has_drained(noticed))
        drained_after = time.time() - died_at
    records = list(load_client.read(out))
    assert len(records) > 60
    assert drained_after < 10  # once its requests had ended, long before the deadline
    failures = [record for record in records if record.error]
    assert not [record for record in failures if record.is_repeatable]
    # A killed worker ends when it is scheduled, on a full machine later.
    around = [(record.at - dead_at, record.at + record.last - died_at) for record in failures]
    assert all(began < 0.5 and ended > -0.5 for began, ended in around), around
    assert len(failures) <= SCRIPT.concurrency

    def count(name: str) -> int:
        return sum(getattr(proxy.state(), name) for proxy in running.proxies)

    # A closed connection counts once three samples in a row lack its response.
    wait_until(lambda: count("arrived") == count("ended") + count("cut") == len(records))
    assert len(failures) <= count("cut") <= 2 * len(failures)  # see `Counts.state`
    after = [proxy.state() for proxy in running.proxies]
    assert sum(state.refused - before.refused for state, before in zip(after, states, strict=True)) == 0


def health(world: HttpWorld) -> int:
    """Return the status that the load balancer's checks get."""
    return get(world, PROXY_HEALTH_PATH, HttpProxy.health_port).status


def test_requests_end_when_their_callers_leave(world: tuple[HttpWorld, Path]) -> None:
    """Those that wait, too: a worker would compute them for nobody, and callers' retries add to them."""
    running, _ = world
    proxy = running.proxies[0]
    host, port = proxy.address
    before, seconds = proxy.state(), 40
    body = {"messages": [{"role": "user", "content": "a"}], "max_tokens": int(seconds / SCRIPT.token_seconds)}
    command = ["curl", "-s", "-o", "/dev/null", "-d", json.dumps(body)]
    url = f"http://{host}:{port}/v1/chat/completions"
    callers = [subprocess.Popen([*command, url]) for _ in range(SCRIPT.hosts * SCRIPT.concurrency)]
    wait_until(lambda: proxy.state().waiting > 0 and proxy.state().in_flight > 0)
    gone_at = time.monotonic()
    for caller in callers:
        caller.kill()
        caller.wait()
    wait_until(lambda: proxy.state().waiting == proxy.state().in_flight == 0)
    assert time.monotonic() - gone_at < seconds / 2
    after = proxy.state()
    assert (after.cut, after.refused, after.ended) == (before.cut, before.refused, before.ended)


@pytest.mark.soak
def test_a_killed_haproxy_is_filled_again(world: tuple[HttpWorld, Path]) -> None:
    running, _ = world
    proxy = running.proxies[0]
    running.wait_ready(2)
    assert health(running) == 200
    proxy.restart()
    running.wait_ready(2)
    assert get(running, "/v1/models").status == 200
    wait_until(lambda: proxy.state().arrived == 1)  # counted from its start


@pytest.mark.soak
def test_without_workers_a_caller_reads_when_to_try_again_and_the_next_worker_serves(
    world: tuple[HttpWorld, Path],
) -> None:
    running, _ = world
    for name in running.hosts.names():
        running.hosts.end(name)
    wait_until(lambda: running.ready == 0)
    response = get(running, "/v1/models")
    assert response.status == 503
    assert 1 <= int(response.headers["Retry-After"]) <= 60
    assert health(running) == 200
    running.hosts.launch(SCRIPT.release)
    running.wait_ready(1)
    assert get(running, "/v1/models").status == 200


@pytest.mark.soak
def test_requests_that_wait_while_all_workers_drain_go_to_the_next_one(world: tuple[HttpWorld, Path]) -> None:
    """HAProxy itself leaves them in its queue until their timeout: ``ProxySupervisor._take_waiting``."""
    running, _ = world
    name, *others = running.hosts.names()
    for other in others:
        running.hosts.end(other)
    wait_until(lambda: running.ready == 1)
    proxy = running.proxies[0]
    host, port = proxy.address
    body = {"messages": [{"role": "user", "content": "a"}], "max_tokens": 100}
    command = ["curl", "-sf", "-o", "/dev/null", "-d", json.dumps(body)]
    url = f"http://{host}:{port}/v1/chat/completions"
    callers = [subprocess.Popen([*command, url]) for _ in range(SCRIPT.concurrency)]
    try:
        wait_until(lambda: proxy.state().waiting > 0)
        running.hosts.notice(name, 60.0)
        wait_until(lambda: running.ready == 0)
        running.hosts.launch(SCRIPT.release)
        assert [caller.wait(20) for caller in callers] == [0] * len(callers)
    finally:
        for caller in callers:
            caller.kill()
            caller.wait()


@pytest.mark.soak
@pytest.mark.parametrize("kind", http_plays.CLIENTS)
def test_clients_of_other_libraries_notice_no_notice(kind: str) -> None:
    results = http_plays.clients(kind)
    assert [result["failed"] for result in results] == [[]] * len(results)
    assert all(min(result["counts"].values()) > 1 for result in results), results


@pytest.mark.soak
def test_a_good_release_fails_no_request_and_bad_ones_come_back_by_themselves() -> None:
    releases = rollout.releases(rollout.SCRIPT)
    outcomes = rollout.run(releases)
    assert outcomes["good"].incidents == ()
    for name, evidence in {"failing": "requests failed", "never-ready": " of 1 instances with it "}.items():
        assert evidence in outcomes[name].rejection_reason
        assert outcomes[name].incidents == (f"{ROLLED_BACK}/{releases[name].version}",)
    failing = outcomes.pop("failing")
    assert all("a bad release" in record.error for record in failing.failed)
    assert 0 < len(failing.failed) < len(failing.records) / 5  # half of those at its first host
    assert [record for outcome in outcomes.values() for record in outcome.failed] == []
