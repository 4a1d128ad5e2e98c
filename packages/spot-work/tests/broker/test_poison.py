"""A request that ends its worker's process: named and alone from the second delivery on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from rabbitmq import RabbitServer

from spot_work import Client, Queue
from spot_work.rabbitmq.inspector import RabbitMQInspector
from support.waiting import wait_until

DELIVERIES = 4
WORKER = """
import os, signal, sys
from spot_work import Batch, Queue, serve

def run(values):
    with open(sys.argv[2], "a") as runs:
        runs.write(" ".join(values) + "\\n")
    if "poison" in values:
        os.kill(os.getpid(), signal.SIGKILL) if sys.argv[3] == "killed" else os._exit(0)
    return values

serve(run, Queue("poison-" + sys.argv[3], max_deliveries=int(sys.argv[4])), sys.argv[1], Batch(16, 0.5))
"""


@pytest.mark.parametrize("end", ["killed", pytest.param("exit", marks=pytest.mark.soak)])
def test_a_poison_request_takes_no_neighbour_with_it(broker: RabbitServer, tmp_path: Path, end: str) -> None:
    queue, runs, log = Queue(f"poison-{end}", max_deliveries=DELIVERIES), tmp_path / "runs", tmp_path / "log"
    command = [sys.executable, "-c", WORKER, broker.url, str(runs), end, str(DELIVERIES)]
    with Client(broker.url, queue) as client, log.open("ab") as output:
        poison, *futures = [
            client.submit(value, 120.0) for value in ("poison", *(f"good-{n}" for n in range(15)))
        ]
        wait_until(lambda: client._publisher._can_receive.is_set())  # type: ignore[attr-defined]
        inspector = RabbitMQInspector(broker.url, queue)
        wait_until(lambda: inspector.status().waiting == 16)

        def start() -> subprocess.Popen[bytes]:
            return subprocess.Popen(command, stdout=output, stderr=output, env={**os.environ})

        worker = start()
        try:
            starts = 1
            while not inspector.dead_letters() or worker.poll() is not None:
                if worker.poll() is not None:
                    assert starts <= DELIVERIES, log.read_text()
                    worker, starts = start(), starts + 1
            assert [future.result(60) for future in futures] == [f"good-{n}" for n in range(15)]
            assert client.request("after", 60.0) == "after"
        finally:
            worker.send_signal(signal.SIGTERM)
            assert worker.wait(60) == 0
        assert not poison.done() or poison.exception() is not None
        [letter] = inspector.dead_letters()
    assert letter.id in log.read_text()
    batches = [line.split() for line in runs.read_text().splitlines()]
    with_poison = [batch for batch in batches if "poison" in batch]
    assert [len(batch) for batch in with_poison[1:]] == [1] * (DELIVERIES - 1)
    assert sum(len(batch) for batch in batches if "poison" not in batch) <= 16
