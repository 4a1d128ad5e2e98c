"""Bad days of a cluster of three RabbitMQ nodes, with real workers and eight clients.

    python -m packages.broker_plays.cluster_days [PLAN.json]

With a plan it must run in a network namespace of its own (`in_own_network`). The same code in
`test_crowd.py`, at a reduced count, in `make bench-service` and in `make soak`.
"""

from __future__ import annotations

import json
import logging
import random
import subprocess
import sys
import tempfile
import time
from concurrent.futures import Future
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from packages import run_recorder
from packages.broker_plays.crowd import wait_for
from packages.broker_plays.rabbit_cluster import NODES, PORT, RabbitCluster, address, in_own_network
from packages.broker_plays.workers import Processes, Worker
from packages.environments import ROOT
from packages.rabbitmq import free_port
from spot_work import Client, Queue, WorkError

log: Final = logging.getLogger(__name__)

QUEUE: Final = Queue("days", max_deliveries=200)
CLIENTS: Final = 8
WORKERS: Final = 3
_BATCH_SECONDS: Final = 0.004
_SLOW_BATCH_SECONDS: Final = 0.25
COMMAND: Final = (
    *("-m", "spot_work", "packages.run_recorder:run", "--requests"),
    *("--queue", QUEUE.name, "--batch", "8", "--max-deliveries", str(QUEUE.max_deliveries)),
)


@dataclass(frozen=True)
class Plan:
    """What happens: counts, and seconds."""

    requests: int = 2000
    rolling_restarts: int = 1
    alarms: tuple[str, ...] = ("memory",)
    alarm_seconds: float = 3.0
    cut_handshakes: int = 10
    limit_seconds: float = 0.0
    partition_seconds: float = 0.0
    kills: int = 4
    seed: int = 1


LONG: Final = Plan(
    requests=20_000,
    rolling_restarts=2,
    alarms=("memory", "disk"),
    alarm_seconds=120.0,
    cut_handshakes=100,
    limit_seconds=20.0,
    partition_seconds=40.0,
    kills=20,
)


@dataclass
class Days:
    """What became of all requests."""

    requests: int = 0
    lost: int = 0
    wrong: int = 0
    unmarked_duplicates: int = 0
    runs_repeated: int = 0
    clients_alive: int = 0
    cluster_restarts: int = 0
    alarm_done: dict[str, int] = field(default_factory=dict)
    """Requests that were run during each alarm."""
    handshakes_cut: int = 0
    partitions: int = 0
    kills: int = 0
    seconds: float = 0.0
    errors: list[str] = field(default_factory=list)
    broker: str = ""


class _Player:
    def __init__(self, plan: Plan, folder: Path) -> None:
        self.plan, self.outcome = plan, Days()
        self._folder, self._random = folder, random.Random(plan.seed)
        (cluster := folder / "cluster").mkdir()
        self._cluster = RabbitCluster(cluster)
        self._port = free_port()
        self._processes = Processes(folder, "packages.broker_plays.functions:paced")
        self._balancer: subprocess.Popen[str] | None = None
        self._workers: list[Worker] = []
        self._started = 0
        self._asked: list[tuple[int, Future[Any]]] = []
        self._clients: list[Client] = []

    def play(self) -> Days:
        try:
            self._cluster.start()
            self.outcome.broker = self._cluster.evaluate(0, "rabbit_misc:version().").strip().strip('"')
            self._start_balancer()
            self._run()
        finally:
            for client in self._clients:
                client.close()
            for worker in self._workers:
                worker.kill()
            if self._balancer is not None:
                self._balancer.kill()
                self._balancer.communicate()
            self._cluster.remove()
        return self.outcome

    def _run(self) -> None:
        plan, started_at = self.plan, time.monotonic()
        url = f"amqp://guest:guest@127.0.0.1:{self._port}/%2F"
        self._workers = [self._start_worker(url) for _ in range(WORKERS)]
        self._clients = [Client(url, QUEUE) for _ in range(CLIENTS)]
        [client.request((1, 0.0), timeout=120) for client in self._clients]
        steps = [
            *(["restart"] * plan.rolling_restarts),
            *(f"{kind} alarm" for kind in plan.alarms),
            *(["cut"] if plan.cut_handshakes else []),
            *(["limit"] if plan.limit_seconds else []),
            *(["partition"] if plan.partition_seconds else []),
        ]
        for number, step in enumerate(steps):
            kills = plan.kills * (number + 1) // len(steps) - plan.kills * number // len(steps)
            share = plan.requests // len(steps) + (number < plan.requests % len(steps))
            # Enough is left to do when the alarm has come.
            self._submit(share, _SLOW_BATCH_SECONDS if step.endswith("alarm") else _BATCH_SECONDS)
            self._say(step)
            self._happen(step)
            for _ in range(kills):
                self._kill(url)
            self._wait_done()
        for client in self._clients:
            self.outcome.clients_alive += client.request((21, 0.0), timeout=60) == 42
        self._judge()
        self.outcome.seconds = round(time.monotonic() - started_at, 1)

    def _happen(self, step: str) -> None:
        plan = self.plan
        if step == "restart":
            for node in range(NODES):
                self._cluster.restart(node)
            self.outcome.cluster_restarts += 1
        elif step.endswith("alarm"):
            self._alarm(step.partition(" ")[0])
        elif step == "cut":
            self._order(f"cut {plan.cut_handshakes}")
            self._order("drop")
            wait_for(lambda: self._order("count") >= plan.cut_handshakes, self._output)
            self.outcome.handshakes_cut = self._order("count")
        elif step == "limit":
            self._cluster.control(0, "set_vhost_limits", "-p", "/", '{"max-connections": 5}')
            self._order("drop")
            time.sleep(plan.limit_seconds)
            self._cluster.control(0, "clear_vhost_limits", "-p", "/")
        else:
            self._cluster.cut_off(NODES - 1)
            time.sleep(plan.partition_seconds)
            self._cluster.join_again(NODES - 1)
            self.outcome.partitions += 1

    def _alarm(self, kind: str) -> None:
        command, alarm, usual = {
            "memory": ("set_vm_memory_high_watermark", "0.0000001", "0.4"),
            "disk": ("set_disk_free_limit", "100000GB", "50MB"),
        }[kind]
        self._cluster.control(0, command, alarm)
        before = self._runs()
        self._submit_blocked()
        time.sleep(self.plan.alarm_seconds)
        self.outcome.alarm_done[kind] = self._runs() - before
        self._cluster.control(0, command, usual)

    def _submit(self, count: int, seconds: float = _BATCH_SECONDS) -> None:
        for _ in range(count):
            number = len(self._asked)
            client = self._clients[number % CLIENTS]
            self._asked.append((number, client.submit((number, seconds), timeout=900)))
            self.outcome.requests += 1

    def _submit_blocked(self) -> None:
        """A request of each client waits for the end of the alarm."""
        self._submit(CLIENTS)

    def _kill(self, url: str) -> None:
        worker = self._workers.pop(self._random.randrange(len(self._workers)))
        wait_for(worker.ready.exists, self._output)
        worker.kill()
        self._workers.append(self._start_worker(url))
        self.outcome.kills += 1

    def _start_worker(self, url: str) -> Worker:
        self._started += 1
        return self._processes.start(self._started, list(COMMAND), url)

    def _wait_done(self) -> None:
        wait_for(lambda: all(future.done() for _, future in self._asked), self._output)

    def _judge(self) -> None:
        for number, future in self._asked:
            try:
                self.outcome.wrong += future.result(0) != 2 * number
            except WorkError as error:
                self.outcome.lost += 1
                self.outcome.errors.append(repr(error))
        runs = run_recorder.read(self._folder / "runs")
        self.outcome.unmarked_duplicates = runs.unmarked_duplicates
        self.outcome.runs_repeated = runs.repeated

    def _runs(self) -> int:
        path = self._folder / "runs"
        return path.read_bytes().count(b"\n") if path.exists() else 0

    def _start_balancer(self) -> None:
        nodes = [f"{address(node)}:{PORT}" for node in range(NODES)]
        self._balancer = subprocess.Popen(
            [sys.executable, "-m", "packages.broker_plays.balancer", str(self._port), *nodes],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._order("count")

    def _order(self, command: str) -> int:
        assert self._balancer is not None
        assert self._balancer.stdin is not None
        assert self._balancer.stdout is not None
        self._balancer.stdin.write(f"{command}\n")
        self._balancer.stdin.flush()
        return int(self._balancer.stdout.readline())

    def _output(self) -> str:
        done = sum(future.done() for _, future in self._asked)
        return f"{done} of {len(self._asked)} done; {self._processes.output()}"

    def _say(self, step: str) -> None:
        done = sum(future.done() for _, future in self._asked)
        log.warning("%s: %d of %d done", step, done, len(self._asked))


def run(plan: Plan, seconds: float) -> Days:
    """Play a plan in a network of its own; needs root."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "plan.json"
        path.write_text(json.dumps(asdict(plan)))
        command = in_own_network([sys.executable, "-m", "packages.broker_plays.cluster_days", str(path)])
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=seconds)
    if done.returncode:
        raise RuntimeError(f"the play ended with {done.returncode}: {done.stderr[-3000:]}")
    return Days(**json.loads(done.stdout))


def main() -> None:
    """Play the plan of a file, or without one the long one in a network of its own; print the outcome."""
    if len(sys.argv) == 1:
        sys.stdout.write(json.dumps(asdict(run(LONG, seconds=3600)), indent=2) + "\n")
        return
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(message)s")
    logging.getLogger("pika").setLevel(logging.CRITICAL)
    plan = Plan(**json.loads(Path(sys.argv[1]).read_text()))
    with tempfile.TemporaryDirectory() as name:
        sys.stdout.write(json.dumps(asdict(_Player(plan, Path(name)).play())) + "\n")


if __name__ == "__main__":
    main()
