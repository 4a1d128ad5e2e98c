"""The proxy's agent: HAProxy's configuration, its server table and its counts."""

from __future__ import annotations

import json
import socketserver
import threading
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts import names
from contracts.agent.config import HttpProxy, HttpWorkers
from contracts.registry.proxy_state import ProxyState
from tests.node import configs, jobs
from tests.node.configs import FakeClock
from tests.node.metadata import MetadataServer
from tests.node.units import CommandHost
from userdata.agent import tasks
from userdata.agent.machine.background import at_once
from userdata.agent.machine.errors import AgentError, ConfigError
from userdata.agent.proxy import discovery, haproxy_config, metrics, servers, unit
from userdata.agent.proxy.counts import Counts, WorkerKey
from userdata.agent.proxy.discovery import HttpHost
from userdata.agent.proxy.haproxy_config import Paths
from userdata.agent.proxy.runtime import (
    HaproxyUnavailableError,
    RuntimeSocket,
    ServerState,
    Statistics,
    parse_servers,
    parse_statistics,
)
from userdata.agent.proxy.supervisor import ProxySupervisor

PATHS = Paths(Path("/run/gpu-spot/haproxy.sock"), Path("/run/gpu-spot/values.map"))
PROXY = HttpProxy(HttpWorkers(8000, "/ready"), max_workers=2, max_slots=2, concurrency=5, proxies=2)


class Table:
    """HAProxy's server table, as its commands change it."""

    def __init__(self, rows: int, slots: int) -> None:
        self.rows, self.slots = rows, slots
        self.servers = {
            haproxy_config.server_name(slot, row): ServerState(
                haproxy_config.server_name(slot, row), "127.0.0.1", is_disabled=True
            )
            for slot in range(slots)
            for row in range(1, rows + 1)
        }
        self.in_flight: dict[str, int] = {}

    def plan(self, addresses: Iterable[str]) -> servers.TablePlan:
        return servers.plan(self.servers.values(), self.in_flight, set(addresses), self.rows, self.slots)

    def apply(self, commands: Iterable[str]) -> None:
        for command in commands:
            _, _, name, what, value = command.split()
            name = name.removeprefix("workers/")
            server = self.servers[name]
            if what == "addr":
                assert server.is_disabled, "a request would go to another host's worker"
                assert not self.in_flight.get(name), "a request in flight has this server"
                self.servers[name] = replace(server, address=value)
            else:
                self.servers[name] = replace(server, is_disabled=value == "maint")

    def active(self) -> set[tuple[int, str]]:
        return {
            (int(server.name[1:].split("-")[0]), server.address)
            for server in self.servers.values()
            if not server.is_disabled
        }


def test_a_host_gets_a_row_starts_draining_and_leaves_it_once_nothing_is_in_flight() -> None:
    table = Table(rows=1, slots=2)
    first = table.plan(["10.0.0.1"])
    assert first.commands[:2] == (
        "set server workers/s0-1 addr 10.0.0.1",
        "set server workers/s0-1 state drain",
    )
    table.apply(first.commands)
    assert table.active() == {(0, "10.0.0.1"), (1, "10.0.0.1")}
    assert not table.plan(["10.0.0.1"]).commands
    table.in_flight = {"s1-1": 1}
    table.apply(table.plan(["10.0.0.2"]).commands)
    assert not table.active()
    assert table.plan(["10.0.0.2"]).without_row == ("10.0.0.2",)
    table.in_flight = {}
    table.apply(table.plan(["10.0.0.2"]).commands)
    assert table.active() == {(0, "10.0.0.2"), (1, "10.0.0.2")}


@given(st.lists(st.sets(st.integers(1, 9), max_size=4), max_size=12), st.data())
def test_the_table_follows_any_sequence_of_hosts_even_if_passes_end_early(
    sequence: list[set[int]], data: st.DataObject
) -> None:
    table = Table(rows=8, slots=2)
    for numbers in sequence:
        addresses = {f"10.0.0.{number}" for number in numbers}
        commands = table.plan(addresses).commands
        table.apply(commands[: data.draw(st.integers(0, len(commands)))])
        for _ in range(2):
            planned = table.plan(addresses)
            assert not planned.without_row
            table.apply(planned.commands)
        assert not table.plan(addresses).commands
        assert table.active() == {(slot, address) for slot in (0, 1) for address in addresses}


def test_the_configuration_has_the_settings() -> None:
    lines = [line.strip() for line in haproxy_config.render(PROXY, PATHS, user="haproxy").splitlines()]
    assert "retries 2" in lines
    assert "http-check send meth GET uri /ready ver HTTP/1.1 hdr Host gpu-spot hdr Connection close" in lines
    assert 'server-template s1- 1-4 127.0.0.1:8001 agent-send "1\\n" disabled' in lines
    [options] = [line for line in lines if line.startswith("default-server")]
    assert " maxconn 3 " in options  # 5 at a worker, by two proxies
    assert "user haproxy" in lines
    repeated = haproxy_config.render(replace(PROXY, retry_paths=("/v1/embeddings",)), PATHS)
    assert "acl is_repeatable path_beg /v1/embeddings" in repeated
    assert "httpchk" not in haproxy_config.render(replace(PROXY, is_grpc=True), PATHS)


def test_a_table_is_bounded() -> None:
    assert haproxy_config.rows(replace(PROXY, max_workers=1000, max_slots=128)) * 128 <= 4000


STATISTICS = """\
# pxname,svname,qcur,scur,stot,econ,eresp,wredis,status,hrsp_1xx,hrsp_2xx,hrsp_3xx,hrsp_4xx,hrsp_5xx,\
hrsp_other,cli_abrt,srv_abrt,bout,check_status,agent_status,check_rise,check_fall,check_health,
requests,FRONTEND,,9,99,,,,OPEN,0,0,0,0,0,0,,,,,,,,,
workers,s0-1,0,{flight},30,0,{lost},0,{status},0,{ok},0,0,{errors},0,0,{cut},{bout},{check},L7OK,1,3,{health},
workers,BACKEND,{waiting},{now},{total},{refused},3,4,UP,0,{ok},0,0,{all_errors},0,{left},{cut},,,,,,,
""".replace("\\\n", "")


def statistics(**values: Any) -> list[str]:
    texts = {"status": "UP", "check": "L7OK", "health": 3}
    return STATISTICS.format_map(defaultdict(int, {**texts, **values})).splitlines()


def test_counts_are_those_of_haproxy() -> None:
    counts = Counts(100.0)
    assert counts.state() is None
    worker = {"s0-1": WorkerKey("i-1", 0)}
    counts.sample(100.0, parse_statistics(statistics(ok=5, total=5)), worker)
    later = statistics(
        ok=12, errors=2, all_errors=6, lost=3, cut=1, refused=3, total=30, waiting=4, flight=2, now=6, left=1
    )
    counts.sample(110.0, parse_statistics(later), worker)
    state = counts.state()
    assert (state.arrived, state.ended, state.refused, state.waiting, state.in_flight) == (30, 13, 3, 4, 2)
    # One 502, one stream that ended too soon; of one request HAProxy says nothing.
    assert state.cut == 1 + 1
    [requests] = state.workers
    assert (requests.done, requests.failed, requests.in_flight) == (7 + 2 + 2, 2 + 3, 2)
    assert (requests.busy_seconds, requests.request_seconds) == (10.0, 20.0)
    assert state.oldest_seconds == 0.0  # all four may have arrived just now
    counts.sample(110.5, parse_statistics(later), worker)
    counts.sample(111.0, parse_statistics(later), worker)
    waited = counts.state()
    assert waited.oldest_seconds == 1.0
    assert waited.cut == state.cut + (30 - (18 + 1 + 6))


def test_a_worker_counts_from_its_first_sample_in_a_reused_server_and_once_it_was_up() -> None:
    counts = Counts(0.0)
    counts.sample(0.0, parse_statistics(statistics(ok=50, total=50)), {"s0-1": WorkerKey("i-1", 0)})
    counts.sample(1.0, parse_statistics(statistics(ok=50, status="DOWN")), {"s0-1": WorkerKey("i-2", 0)})
    state = counts.state()
    assert not state.workers
    counts.sample(2.0, parse_statistics(statistics(ok=51)), {"s0-1": WorkerKey("i-2", 0)})
    state = counts.state()
    assert [(worker.instance, worker.done) for worker in state.workers] == [("i-2", 1)]


def test_statistics_without_the_backend_are_an_error() -> None:
    with pytest.raises(HaproxyUnavailableError, match="no backend workers"):
        parse_statistics(["# pxname,svname", "other,BACKEND"])
    with pytest.raises(HaproxyUnavailableError, match="empty"):
        parse_statistics([])


def test_a_server_declared_as_disabled_is_in_maintenance_only_until_it_was_activated() -> None:
    header = "# be_name srv_name srv_addr srv_admin_state"
    lines = ["1", header, "workers s0-1 127.0.0.1 5", "workers s0-2 10.0.0.1 12", ""]
    assert [(server.name, server.is_disabled) for server in parse_servers(lines)] == [
        ("s0-1", True),
        ("s0-2", False),
    ]


class FakeSocket(RuntimeSocket):
    """HAProxy's answers, and the commands that it got."""

    def __init__(self) -> None:
        super().__init__(PATHS.socket)
        self.table = Table(rows=4, slots=2)
        self.pid = "1"
        self.status = "DOWN"
        self.changes: dict[str, Any] = {}
        self.commands: list[str] = []

    def process(self) -> str:
        return self.pid

    def servers(self) -> list[ServerState]:
        return list(self.table.servers.values())

    def statistics(self) -> Statistics:
        parsed = parse_statistics(statistics(waiting=1, status=self.status, **self.changes))
        line = parsed.servers["s0-1"]
        lines = {
            name: replace(line, name=name, is_up=line.is_up and not server.is_disabled)
            for name, server in self.table.servers.items()
        }
        return replace(parsed, servers=lines)

    def change(self, command: str) -> None:
        self.commands.append(command)
        if command.startswith("set server"):
            self.table.apply([command])


def supervisor(
    clock: FakeClock, hosts: list[HttpHost], socket: FakeSocket, **changes: Any
) -> ProxySupervisor:
    arguments = {"discover": lambda: tuple(hosts), "run_in_background": at_once, **changes}
    return ProxySupervisor(
        PROXY, PATHS, write=lambda state, ready: None, clock=clock, runtime=socket, **arguments
    )


def test_the_boot_time_of_a_host_becomes_the_callers_wait(clock: FakeClock) -> None:
    socket = FakeSocket()
    hosts = [HttpHost("i-1", "10.0.0.1", clock.wall() - 20)]
    running = supervisor(clock, hosts, socket)
    for _ in range(3):
        running.tick()
        clock.advance(10)
    socket.status = "UP"
    running.tick()
    assert f"set map {PATHS.values} seconds 50" in socket.commands
    hosts.append(HttpHost("i-2", "10.0.0.2", clock.wall() - 999))  # ready before it was seen
    socket.commands.clear()
    clock.advance(10)
    running.tick()
    assert not [command for command in socket.commands if "map" in command]


def test_what_waits_is_offered_to_servers_with_room(clock: FakeClock) -> None:
    socket = FakeSocket()
    running = supervisor(clock, [HttpHost("i-1", "10.0.0.1")], socket)
    running.tick()
    assert not [command for command in socket.commands if "maxconn" in command]
    socket.status = "UP"
    running.tick()
    assert "set maxconn server workers/s0-1 3" in socket.commands


def test_a_worker_that_works_and_answers_no_check_is_kept_while_it_gives_signs(clock: FakeClock) -> None:
    socket = FakeSocket()
    running = supervisor(clock, [HttpHost("i-1", "10.0.0.1")], socket)

    def kept(seconds: float = 1.0, **changes: Any) -> bool:
        socket.changes = changes
        socket.commands.clear()
        clock.sleep(seconds)
        running.tick()
        return "set server workers/s0-1 health up" in socket.commands

    silent = {"check": "* L7TOUT", "health": 2, "flight": 1}
    assert not kept(**{**silent, "check": "L7OK"})
    assert kept(**silent)
    assert not kept(**{**silent, "flight": 0})
    assert not kept(**{**silent, "check": "L4CON"})  # its port is closed: it is gone
    for number in (1, 2, 3):  # bytes of a stream
        kept(PROXY.idle_timeout_seconds - 1, **silent, bout=number)
        assert kept(**silent, bout=number)
    assert not kept(PROXY.idle_timeout_seconds, **silent, bout=3)


def test_a_new_haproxy_is_filled_at_once(clock: FakeClock) -> None:
    socket = FakeSocket()
    running = supervisor(clock, [HttpHost("i-1", "10.0.0.1")], socket)
    running.tick()
    socket.pid, socket.table = "2", Table(rows=4, slots=2)
    clock.advance(1)
    running.tick()
    assert socket.table.active() == {(0, "10.0.0.1"), (1, "10.0.0.1")}
    assert running.state.started_at == clock.wall()


def test_a_restarted_agent_changes_no_table_before_it_knows_the_hosts(clock: FakeClock) -> None:
    socket, hosts = FakeSocket(), [HttpHost("i-1", "10.0.0.1")]
    supervisor(clock, hosts, socket).tick()
    active, due = socket.table.active(), list[Any]()

    def fail() -> tuple[HttpHost, ...]:
        raise AgentError("no answer")

    for discover in (fail, lambda: tuple(hosts)):
        socket.commands.clear()
        again = supervisor(clock, hosts, socket, discover=discover, run_in_background=due.append)
        for _ in range(3):
            again.tick()
        due.pop(0)()
        if discover is fail:
            again.tick()
        assert socket.commands == []
        assert socket.table.active() == active
        due.clear()


def test_a_proxy_is_healthy_once_its_table_is_filled(clock: FakeClock) -> None:
    socket, hosts = FakeSocket(), list[HttpHost]()
    filled = f"set map {PATHS.values} filled 1"
    running = supervisor(clock, hosts, socket)
    running.tick()
    assert socket.commands == [filled]  # also without any host: the service may be scaled to zero
    running.tick()
    assert socket.commands == [filled]
    socket.pid = "2"  # a new HAProxy has read its map again
    running.tick()
    assert socket.commands == [filled, filled]


def test_a_host_with_the_address_of_a_row_gets_that_row() -> None:
    """Else its workers are in two rows: the agent's answer ends the maintenance of the former one."""
    table = Table(rows=3, slots=1)
    for addresses in (["10.0.0.1", "10.0.0.2", "10.0.0.3"], ["10.0.0.3"], ["10.0.0.2", "10.0.0.3"]):
        table.apply(table.plan(addresses).commands)
    assert [server.address for server in table.servers.values()] == ["10.0.0.1", "10.0.0.2", "10.0.0.3"]
    assert table.active() == {(0, "10.0.0.2"), (0, "10.0.0.3")}


def test_only_a_proxy_has_the_subcommand(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="proxy is missing"):
        tasks.proxy(tasks.Node(configs.load(configs.service()), tmp_path, "http://x"))


class FakeHaproxy(socketserver.BaseRequestHandler):
    """HAProxy's socket, with one server: what `RuntimeSocket` reads from a real one in ``tests/real``."""

    def handle(self) -> None:
        command = self.request.recv(1000).decode().strip()
        answers = {
            "show info": "Name: HAProxy\nPid: 7\n",
            "show stat": "\n".join(statistics(ok=3, total=3)) + "\n\n",
            "show servers state workers": "1\n# srv_name srv_addr srv_admin_state\n"
            + "".join(f"s0-{row} 127.0.0.1 5\n" for row in range(1, 3)),
        }
        self.request.sendall(answers.get(command, "\n").encode())


def test_the_subcommand_configures_haproxy_once_and_reports_its_requests(
    aws: Any, metadata_server: MetadataServer, clock: FakeClock, tmp_path: Path
) -> None:
    """On moto: the group's instances, the item in the proxy's partition; EC2 is asked for no others."""
    run = {"ImageId": jobs.IMAGE, "MinCount": 1, "MaxCount": 1, "InstanceType": "t3.micro"}
    for group in ("resnet", "another"):
        tags = [{"Key": names.TAG_STACK, "Value": "dev"}, {"Key": names.TAG_GROUP, "Value": group}]
        aws.run_instances(**run, TagSpecifications=[{"ResourceType": "instance", "Tags": tags}])
    [host] = discovery.describe(aws, "dev", "resnet")
    assert host.address.count(".") == 3
    assert host.launched_at is not None

    made = jobs.node(aws, metadata_server, clock, tmp_path, f"{jobs.REGION}a", CommandHost())
    settings = HttpProxy(HttpWorkers(8000), max_workers=1)
    made.config = replace(made.config, training=None, volume=None, proxy=settings)
    made.kernel = tmp_path
    made.run_in_background = at_once
    made.on_sigterm = lambda stop: setattr(clock, "on_sleep", lambda seconds: stop())
    made.host = commands = CommandHost()
    with socketserver.UnixStreamServer(str(tmp_path / "haproxy.sock"), FakeHaproxy) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        assert tasks.proxy(made) == 0
        assert tasks.proxy(made) == 0
        server.shutdown()
    assert [argv[1] for argv in commands.ran] == ["daemon-reload", "enable", "restart", "enable", "start"]
    drop_in = tmp_path / "etc/systemd/system/haproxy.service.d/gpu-spot.conf"
    assert "Restart=always" in drop_in.read_text()
    config = (tmp_path / "etc/haproxy/haproxy.cfg").read_text()
    assert "chroot /var/lib/haproxy" in config
    row = jobs.row()
    account = f"arn:aws:ec2:{jobs.REGION}:123456789012:instance/{made.identity.instance}"
    assert row[names.REGISTRY_KEY] == f"resnet@proxy#{account}"
    assert (row["arrived"], row["ended"]) == ("3", "3")


def test_a_configuration_that_haproxy_has_not_read_is_no_reason_not_to_restart_it(tmp_path: Path) -> None:
    host = CommandHost(systemctl=AgentError("systemctl: not ended after 30 s; killed"))
    paths = Paths(tmp_path / "socket", tmp_path / "values")
    with pytest.raises(AgentError, match="not ended"):
        unit.start(PROXY, paths, host, tmp_path)
    host.answers.clear()
    unit.start(PROXY, paths, host, tmp_path)
    assert host.ran[-1] == ["systemctl", "restart", "haproxy.service"]


def test_a_line_of_metrics_has_the_counts_since_the_last_one() -> None:
    requests = metrics.RequestMetrics(configs.load(configs.service()), "i-9")
    first = ProxyState(100.0, 50.0, waiting=2, in_flight=1, oldest_seconds=0.0, arrived=10, ended=7, cut=1)
    assert json.loads(requests.line(first, 3))[names.METRIC_HTTP_REQUESTS] == 10
    line = json.loads(requests.line(replace(first, arrived=15, cut=3), 3))
    assert (line[names.METRIC_HTTP_REQUESTS], line[names.METRIC_HTTP_CUT]) == (5, 2)
    assert (line[names.METRIC_HTTP_WAITING], line[names.METRIC_HTTP_WORKERS_READY]) == (2, 3)
    restarted = replace(first, started_at=110.0, arrived=4)
    assert json.loads(requests.line(restarted, 3))[names.METRIC_HTTP_REQUESTS] == 4
