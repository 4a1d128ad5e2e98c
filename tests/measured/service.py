"""A queue of GPU work on a real RabbitMQ server (``make bench-service``): losses, batches, overhead.

Losses: ``tests/real/crowd.py``, of processes and, as root with podman, of containers.
Batches and overhead: one worker in its own process, with all requests already in the queue. The overhead is
the worker's CPU time for an empty message, compared with a dozen lines on the bare client library: reply and
acknowledgement, without and with a confirmed reply (ours confirms the reply before it acknowledges).
"""

from __future__ import annotations

import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import pika

from packages.rabbitmq import RabbitServer
from research.parts.page import replace_part
from research.parts.run import MACHINE, parser_of, write
from spot_work import Client, Queue
from tests.measured.parts import needs
from tests.real import cluster_days, containers, crowd, rabbit_cluster, stable

MESSAGES: Final = 20_000
LOSSES: Final = 60
IN_CONTAINERS: Final = 4_000
LOSSES_IN_CONTAINERS: Final = 16
WORKERS: Final = 4
ROUNDS: Final = 3
_IMAGES: Final = 1_500
_NOTHINGS: Final = 5_000
_BARE: Final = (
    "import sys; from tests.measured.service import bare; bare(*sys.argv[1:3], confirmed=bool(sys.argv[3]))"
)


def many(images: Sequence[bytes]) -> list[str]:
    """Process a batch; the model is only made in a worker."""
    from tests.measured.parts import model_double

    return model_double.read(images)


def handle(image: bytes) -> str:
    """Process one image at a time."""
    return many([image])[0]


def nothing(value: Any) -> Any:
    """Do nothing."""
    return value


def bare(url: str, queue: str, *, confirmed: bool) -> None:
    """Run a worker on the bare client library that does nothing, until it is killed.

    ``confirmed``: it acknowledges after the broker has confirmed the reply, as ours does.
    """
    channel = pika.BlockingConnection(pika.URLParameters(url)).channel()
    channel.basic_qos(prefetch_count=2)
    if confirmed:
        channel.confirm_delivery()

    def reply(_: Any, method: Any, properties: pika.BasicProperties, body: bytes) -> None:
        reply_properties = pika.BasicProperties(
            content_type=properties.content_type, delivery_mode=2, correlation_id=properties.correlation_id
        )
        channel.basic_publish("", properties.reply_to, body, reply_properties)
        channel.basic_ack(method.delivery_tag)

    channel.basic_consume(queue, reply)
    channel.start_consuming()


def _seconds_of(process: subprocess.Popen[bytes]) -> float:
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(
    broker: RabbitServer, name: str, arguments: Sequence[str], values: Sequence[Any]
) -> tuple[float, float]:
    """Return the seconds until one worker has answered all requests, and its CPU time.

    Raises:
        RuntimeError: if the worker ends before.
    """
    paths = os.pathsep.join([str(stable.HERE), str(stable.HERE / "packages" / "spot-work" / "src")])
    environment = {**os.environ, "PYTHONPATH": paths, "SPOT_WORK_URL": broker.url}
    # One thread for the matrix product: the gain is that of batches, not of more cores.
    environment["OPENBLAS_NUM_THREADS"] = "1"
    with Client(broker.url, Queue(name)) as client:
        first = client.submit(values[0], timeout=600)
        command = [sys.executable, *arguments]
        worker = subprocess.Popen(
            command, cwd=stable.HERE, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            while not first.done():  # it is running and has loaded its weights
                if worker.poll() is not None:
                    raise RuntimeError(
                        f"the worker {shlex.join(arguments)} ended with code {worker.returncode}"
                    )
                time.sleep(0.01)
            before, started_at = _seconds_of(worker), time.monotonic()
            for future in [client.submit(value, timeout=600) for value in values]:
                future.result()
            return time.monotonic() - started_at, _seconds_of(worker) - before
        finally:
            worker.kill()
            worker.wait()


def gains(broker: RabbitServer) -> dict[str, float]:
    """Return the gain of batches and the package's overhead: medians of rounds with both variants."""
    image = bytes(range(256)) * 4
    served = ["-m", "spot_work", "--batch"]
    speed, cpu, cpu_confirmed, wall, vs_pika = [], [], [], [], []
    for number in range(ROUNDS):
        alone, _ = measure(
            broker,
            f"one-{number}",
            [*served, "1", "tests.measured.service:handle", "--queue", f"one-{number}"],
            [image] * _IMAGES,
        )
        batched, _ = measure(
            broker,
            f"many-{number}",
            [*served, "16", "tests.measured.service:many", "--queue", f"many-{number}"],
            [image] * _IMAGES,
        )
        speed.append(alone / batched)
        ours = measure(
            broker,
            f"ours-{number}",
            [*served, "1", "tests.measured.service:nothing", "--queue", f"ours-{number}"],
            [1] * _NOTHINGS,
        )
        theirs, confirmed = (
            measure(broker, name, ["-c", _BARE, broker.url, name, promise], [1] * _NOTHINGS)
            for name, promise in ((f"bare-{number}", ""), (f"confirmed-{number}", "confirmed"))
        )
        wall.append(ours[0] / theirs[0])
        vs_pika.append(confirmed[0] / ours[0])
        cpu.append(ours[1] / theirs[1])
        cpu_confirmed.append(ours[1] / confirmed[1])
    return {
        "batching_speedup": round(statistics.median(speed), 2),
        "overhead_ratio": round(statistics.median(cpu), 2),
        "overhead_ratio_confirmed": round(statistics.median(cpu_confirmed), 2),
        "overhead_ratio_wall": round(statistics.median(wall), 2),
        "vs_pika": round(statistics.median(vs_pika), 2),
    }


def bad_days(*, is_long: bool) -> dict[str, Any]:
    """Return the outcome of a cluster's bad days, or the reason why this machine cannot play them."""
    if not rabbit_cluster.may_have_own_network():
        return {"cluster_not_run": "needs root, for a network namespace"}
    plan = cluster_days.LONG if is_long else cluster_days.Plan()
    days = asdict(cluster_days.run(plan, seconds=3600))
    return {"cluster": days, "cluster_restarts": days["cluster_restarts"], "alarm_done": days["alarm_done"]}


def in_containers(broker: RabbitServer, messages: int, losses: int, seed: int) -> dict[str, Any]:
    """Return the losses of many containers, or the reason why this machine cannot run them."""
    try:
        with containers.folder() as directory, containers.podman(directory):
            containers.take_in(containers.python_image(stable.code()), containers.PYTHON)
            played = crowd.play(
                broker, stable.Containers(directory), messages, workers=WORKERS, losses=losses, seed=seed
            )
    except containers.LackingError as error:
        return {"not_run": str(error)}
    return asdict(played)


def write_page(result: dict[str, Any], docs: Path) -> None:
    """Write this benchmark's part of the page."""
    text = (
        "## A service's queue\n\n"
        f"`make bench-service` sends {result['messages']:,} requests to {WORKERS} `spot_work` processes on "
        "a local "
        f"RabbitMQ server, while {result['killed']} workers are killed, {result['drained']} get SIGTERM and "
        "drain, "
        f"and the broker is killed once: **{result['lost']} lost, {result['wrong']} wrong, "
        f"{result['unmarked_duplicates']} duplicates without a mark**; {result['runs_repeated']} ran again, "
        "with "
        f"the mark. The slowest drain took {result['longest_drain']:.1f} s. "
        f"{_contained(result['containers'])}\n\n"
        f"{_bad_days(result)}\n\n"
        f"Batches of 16 process {result['batching_speedup']} times as many images as single ones, with the "
        "model "
        "double of `tests/measured/parts/model_double.py` on one core: it reads its weights once per batch. "
        "An empty message "
        f"costs the worker {result['overhead_ratio']} times the CPU time of the bare client library, which "
        "acknowledges before the broker has the reply, and "
        f"{result['overhead_ratio_confirmed']} times if the library waits for it. Not measured: a GPU, "
        "Amazon MQ, "
        "a network.\n"
    )
    replace_part(docs, "service", text)


def _contained(played: dict[str, Any]) -> str:
    if "not_run" in played:
        return f"Containers were not run: {played['not_run']}."
    return (
        f"With {WORKERS} podman containers, each with a device file by CDI, under the agent's supervisor: "
        f"{played['messages']:,} requests, {played['killed']} killed, {played['drained']} drained, the "
        "broker "
        f"killed once: **{played['lost']} lost, {played['wrong']} wrong, {played['unmarked_duplicates']} "
        f"duplicates without a mark**, the slowest drain {played['longest_drain']:.1f} s."
    )


def _bad_days(result: dict[str, Any]) -> str:
    if "cluster" not in result:
        return f"A cluster was not run: {result['cluster_not_run']}."
    days = result["cluster"]
    done = ", ".join(f"{count:,} ran during the {kind} alarm" for kind, count in days["alarm_done"].items())
    return (
        f"A cluster of three RabbitMQ {days['broker']} nodes, behind a load balancer: {days['requests']:,} "
        f"requests of eight clients through {days['cluster_restarts']} rolling restarts, alarms of 120 s "
        f"({done}), {days['handshakes_cut']} cut logins, a connection limit, {days['partitions']} partition "
        f"and {days['kills']} kills of workers: **{days['lost']} lost, {days['wrong']} wrong, "
        f"{days['unmarked_duplicates']} duplicates without a mark**."
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write the file; return 1 if anything was lost or run twice unmarked."""
    parser = parser_of(__doc__, "service", docs=True)
    parser.add_argument("--messages", type=int, default=MESSAGES, metavar="N")
    parser.add_argument("--in-containers", type=int, default=IN_CONTAINERS, metavar="N", help="of messages")
    parser.add_argument(
        "--losses", type=int, default=LOSSES, metavar="N", help="of workers, with and without a notice"
    )
    parser.add_argument("--seed", type=int, default=1, metavar="N")
    options = parser.parse_args(arguments)
    needs.rabbitmq()
    needs.containers_or_none(*containers.PODMAN)
    with tempfile.TemporaryDirectory() as name:
        (folder := Path(name) / "broker").mkdir()
        broker = RabbitServer(folder)
        try:
            broker.start()
            result_by_gain = gains(broker)
            outcome = crowd.play(
                broker,
                stable.Processes(Path(name)),
                options.messages,
                workers=WORKERS,
                losses=options.losses,
                seed=options.seed,
            )
            contained = in_containers(broker, options.in_containers, LOSSES_IN_CONTAINERS, options.seed)
        finally:
            broker.remove()
    days = bad_days(is_long=options.messages >= MESSAGES)
    result = {
        "machine": MACHINE,
        "broker": "RabbitMQ of this machine, one node",
        "seed": options.seed,
        **asdict(outcome),
        **result_by_gain,
        "containers": contained,
        **days,
    }
    write(options.out, result)
    print(json.dumps(result, indent=2))
    if options.messages >= MESSAGES:
        write_page(result, options.docs)
    parts = (result, contained, days.get("cluster", {}))
    faults = ("lost", "wrong", "unmarked_duplicates", "drains_failed")
    return int(any(part.get(fault, 0) for part in parts for fault in faults))


if __name__ == "__main__":
    sys.exit(main())
