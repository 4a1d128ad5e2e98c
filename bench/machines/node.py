"""Measure the node agent: crash cases of the data volume, latency of a notice, memory and CPU.

The crash cases run on an in-memory double of EBS (`tests/node/world.py`). Latency and cost are of the real
processes: `watch`, `work` and `metrics` as the units start them, against a metadata service, a DynamoDB
endpoint and a CloudWatch agent on loopback; NVML is a double with 8 GPUs, 4 processes on each.
"""

from __future__ import annotations

import json
import os
import platform
import random
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.parts.run import parser_of, write
from tests.node.metadata import MetadataServer
from userdata.agent.aws.imds import IDENTITY, SPOT_ACTION

ROOT = Path(__file__).resolve().parents[2]
PAGE = os.sysconf("SC_PAGE_SIZE")
TICKS = os.sysconf("SC_CLK_TCK")

CONFIG = {
    "region": "us-west-2",
    "stack": "bench",
    "group": "serve",
    "side": "primary",
    "registryTable": "registry",
    "drainSeconds": 110,
    "heartbeatSeconds": 10,
    "service": {"command": ["sleep", "1000"], "slotsPerGpu": 1},
}
# Doubles for a driver and its GPUs, which this machine lacks.
LAUNCH = """
import sys
from userdata.agent import cli
from userdata.agent.tasks import machine, node
command = sys.argv[-1]
node._INSTANCE_ID = __import__("pathlib").Path(sys.argv[2]).with_name("instance-id")
if command == "metrics":
    from tests.node.fake_nvml import FakeGpu, FakeNvml
    gpus = [FakeGpu(f"GPU-{n}", {1000 * n + p: 2**30 for p in range(4)}) for n in range(8)]
    machine._nvml = lambda: FakeNvml(gpus)
if command == "work":
    import userdata.agent.work.service.workers
    userdata.agent.work.service.workers.gpu_count = lambda: 8
sys.exit(cli.main(sys.argv[1:]))
"""


class Endpoint(MetadataServer):
    """A double of the instance metadata service and the worker registry; ``writes`` counts heartbeats."""

    def __init__(self) -> None:
        super().__init__()
        self.documents[IDENTITY] = json.dumps(
            {
                "instanceId": "i-0",
                "accountId": "123456789012",
                "availabilityZone": "us-west-2a",
                "region": "us-west-2",
                "instanceType": "p4d.24xlarge",
            }
        )
        self.writes = 0

    def post(self, body: bytes) -> str:
        """Answer as DynamoDB does to a heartbeat."""
        self.writes += 1
        return "{}"


def listen() -> tuple[int, list[bytes]]:
    """Start a double of the CloudWatch agent; return its port and the received data."""
    server, received = socket.create_server(("127.0.0.1", 0)), []  # type: ignore[var-annotated]

    def serve() -> None:
        while True:
            connection, _ = server.accept()
            with connection, connection.makefile("rb") as file:
                received.extend(file)

    threading.Thread(target=serve, daemon=True).start()
    return server.getsockname()[1], received


@contextmanager
def agent(
    command: str, endpoint: Endpoint, directory: Path, config: dict[str, Any]
) -> Iterator[subprocess.Popen[bytes]]:
    """Run one of the agent's processes."""
    path = directory / "agent.json"
    path.write_text(json.dumps(config))
    (directory / "instance-id").write_text("i-0123456789abcdef0")
    env = {
        "PYTHONPATH": f"{ROOT}:{sysconfig.get_path('purelib')}",
        "PATH": f"{directory}:{os.environ['PATH']}",
        "AWS_ENDPOINT_URL": endpoint.url,
        "AWS_ACCESS_KEY_ID": "bench",
        "AWS_SECRET_ACCESS_KEY": "bench",
    }
    options = ["--config", str(path), "--run-dir", str(directory), "--metadata-url", endpoint.url, command]
    argv = [sys.executable, "-S", "-c", LAUNCH, *options]
    with (directory / f"{command}.log").open("wb") as log:
        process = subprocess.Popen(argv, cwd=ROOT, env=env, stderr=log)  # noqa: S603
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(30)


def notice_latency(rounds: int) -> tuple[list[float], list[float]]:
    """Return seconds from the change of the metadata to the notice file, and to the training's SIGTERM."""
    chance = random.Random(1)
    to_file, to_signal = [], []
    body = {k: v for k, v in CONFIG.items() if k != "service"}
    training = {
        "job": "j",
        "jobTable": "t",
        "repository": "https://example.org/r",
        "revision": "0" * 40,
        "command": ["x"],
        "user": "u",
        "finishedParameter": "p",
    }
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as name:
            directory, endpoint = Path(name), Endpoint()
            work = subprocess.Popen(["sleep", "1000"])  # noqa: S607
            systemctl = directory / "systemctl"  # names the unit's process
            systemctl.write_text(f"#!/bin/sh\necho {work.pid}\n")
            systemctl.chmod(0o755)
            with agent("watch", endpoint, directory, {**body, "training": training}) as watch:
                time.sleep(2 + chance.uniform(0, 5))
                at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 120))
                changed = time.monotonic()
                endpoint.documents[SPOT_ACTION] = json.dumps({"action": "terminate", "time": at})
                while not (directory / "notice.json").exists():
                    if watch.poll() is not None:
                        sys.exit(f"watch ended: {(directory / 'watch.log').read_text()[-500:]}")
                    time.sleep(0.005)
                to_file.append(time.monotonic() - changed)
                work.wait()
                to_signal.append(time.monotonic() - changed)
    return to_file, to_signal


def usage(pid: int) -> tuple[float, float]:
    """Return a process's resident memory in MB and its CPU seconds, those of ended children included."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    resident = int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE / 1e6
    return resident, sum(int(f) for f in fields[11:15]) / TICKS


def cost(seconds: float) -> dict[str, Any]:
    """Run all processes of a service instance concurrently and measure them after their start."""
    with tempfile.TemporaryDirectory() as name:
        directory, endpoint = Path(name), Endpoint()
        port, received = listen()
        config = {**CONFIG, "metrics": {"emfPort": port, "periodSeconds": 10, "sendEverySeconds": 20}}
        with (
            agent("watch", endpoint, directory, config) as watch,
            agent("work", endpoint, directory, config) as work,
            agent("metrics", endpoint, directory, config) as metrics,
        ):
            processes = {"watch": watch, "work": work, "metrics": metrics}
            time.sleep(8)
            before = {n: usage(p.pid)[1] for n, p in processes.items()}
            time.sleep(seconds)
            after = {n: usage(p.pid) for n, p in processes.items()}
            ended = [n for n, p in processes.items() if p.poll() is not None]
        if ended or not endpoint.writes or not received:
            logs = {p.name: p.read_text()[-500:] for p in directory.glob("*.log")}
            sys.exit(
                f"not measured: ended {ended}, heartbeats {endpoint.writes}, lines {len(received)}: {logs}"
            )
    return {
        "agent_rss_mb": round(sum(rss for rss, _ in after.values()), 1),
        "agent_cpu_fraction": round(sum(cpu - before[n] for n, (_, cpu) in after.items()) / seconds, 4),
        "processes": {
            n: {"rss_mb": round(rss, 1), "cpu_fraction": round((cpu - before[n]) / seconds, 4)}
            for n, (rss, cpu) in after.items()
        },
        "measured_seconds": seconds,
        "heartbeats": endpoint.writes,
    }


def main() -> None:
    """Write one JSON object to ``--out``."""
    parser = parser_of(__doc__, "node")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long memory and CPU are measured")
    parser.add_argument("--rounds", type=int, default=4, help="how many notices are timed")
    options = parser.parse_args()
    argv = [sys.executable, "-m", "tests.node.damage"]
    crash = json.loads(subprocess.run(argv, cwd=ROOT, check=True, capture_output=True, text=True).stdout)  # noqa: S603
    to_file, to_signal = notice_latency(options.rounds)
    result = {
        "cases": crash["cases"],
        "interleavings": crash["interleavings"],
        "lost": crash["lost"],
        "orphaned": crash["orphaned"],
        "unfinished": crash["unfinished"],
        "cases_by_sequel": crash["by_sequel"],
        "notice_latency_s": round(max(to_file), 3),
        "sigterm_latency_s": round(max(to_signal), 3),
        "notices": options.rounds,
        **cost(options.seconds),
        "python": platform.python_version(),
        "nvml": "double (tests/node/fake_nvml.py)",
    }
    write(options.out, result)
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
