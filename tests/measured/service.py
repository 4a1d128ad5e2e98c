"""A queue of GPU work on a real RabbitMQ server (``make bench-service``): losses, batches, overhead.

Losses: ``packages/broker_plays/crowd.py``, of processes and, as root with podman, of containers.
Batches and overhead: ``research/parts/queue_gains.py``.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from packages.broker_plays import cluster_days, crowd, rabbit_cluster
from packages.broker_plays.workers import Processes
from packages.rabbitmq import RabbitServer
from research.parts import queue_gains
from research.parts.page import replace_part, table
from research.parts.queue_gains import PREFETCHES
from research.parts.run import MACHINE, parser_of, write
from tests.measured.parts import needs
from tests.real import containers, stable

MESSAGES: Final = 20_000
LOSSES: Final = 60
IN_CONTAINERS: Final = 4_000
LOSSES_IN_CONTAINERS: Final = 16
WORKERS: Final = 4
RIVALS: Final = {
    "pipelined_first": f"lines on pika, one thread and one connection, {PREFETCHES[0]} requests on their way",
    "pipelined": "the same at its best",
    "apart_first": f"with a thread and a connection for replies, {PREFETCHES[0]} requests on their way",
    "apart": "the same at its best",
    "celery": "Celery, at its best",
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
        f"{gains_text(result)}\n"
    )
    replace_part(docs, "service", text)


def gains_text(result: dict[str, Any]) -> str:
    """Return what the page says of `queue_gains`."""
    rows = [
        (label, *(f"{result[key]:.2f}" if key in result else "–" for key in (f"vs_{name}", f"cpu_vs_{name}")))
        for name, label in RIVALS.items()
    ]
    return (
        f"Batches of 16 process {result['batching_speedup']} times as many images as single ones, with the "
        "model "
        "double of `research/parts/model_double.py` on one core: it reads its weights once per batch. "
        "A full queue of empty messages, beside workers that acknowledge a request after its reply is "
        f"confirmed, with {PREFETCHES[0]} or the best of {', '.join(map(str, PREFETCHES))} on their way:\n\n"
        + table(("`spot_work` ÷", "requests", "CPU time"), rows)
        + "\n\nOne thread sends no heartbeats while a function runs, one connection acknowledges nothing "
        "while an alarm of the broker's stops its replies, and as many requests as are on their way wait "
        "behind one that takes long; `spot_work` has 40 ms of work on its way. Of its CPU time a process of "
        "its own that sends heartbeats is a part. Not measured: a GPU, Amazon MQ, a network."
    )


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
            result_by_gain = queue_gains.gains(broker)
            outcome = crowd.play(
                broker,
                Processes(Path(name)),
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
