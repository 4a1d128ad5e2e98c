"""The queue's variables of a worker: the address with its secret, for the worker only, never logged."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from contracts.agent.config import Queue
from tests.node.workbench import Bench
from tests.waiting import wait_until
from userdata.agent.machine.errors import AgentError
from userdata.agent.machine.host import SystemHost
from userdata.agent.work.service import queue


class Docker(SystemHost):
    """Docker with one container left over, until that is removed."""

    def __init__(self) -> None:
        super().__init__()
        self.ran: list[list[str]] = []

    def run(self, argv: Sequence[str], stdin: str = "", environment: Any = None) -> str:
        self.ran.append(list(argv))
        return "" if any("rm" in call for call in self.ran) else "0123456789ab"


QUEUE = Queue(secret="queues/ocr", name="ocr", max_length=10)
URL = "amqps://gpu-spot:pa55@b-1.example.com:5671"


def no_secret() -> Mapping[str, str]:
    raise AgentError("secret queues/ocr: ResourceNotFoundException")


def test_only_a_worker_gets_the_address_of_its_queue(
    workbench: Bench, capfd: pytest.CaptureFixture[str]
) -> None:
    workbench.secrets = lambda: queue.environment(QUEUE, f"{URL}\n")
    says = "echo $SPOT_WORK_URL $SPOT_WORK_QUEUE $SPOT_WORK_TRIES $SPOT_WORK_MOST; sleep 60"
    workbench.workers(says, count=1).tick()
    [process] = workbench.processes
    assert process.stdout
    assert process.stdout.readline().decode() == f"{URL} ocr 20 10\n"
    assert "pa55" not in Path(f"/proc/{process.pid}/cmdline").read_text()
    assert "pa55" not in "".join(capfd.readouterr())


def test_a_container_finds_its_queue_in_a_file_that_only_root_may_read(workbench: Bench) -> None:
    workbench.secrets = lambda: queue.environment(QUEUE, URL)
    workbench.host = docker = Docker()
    workers = workbench.workers("", count=1, image="r@sha256:" + "0" * 64)
    started: list[tuple[list[str], Mapping[str, str]]] = []

    def spawn(argv: list[str], more: Mapping[str, str]) -> subprocess.Popen[bytes]:
        started.append((argv, more))
        workbench.processes.append(subprocess.Popen(["sleep", "60"], start_new_session=True))
        return workbench.processes[-1]

    workers._spawn = spawn
    workers.tick()
    [(argv, more)] = started
    file = Path(argv[argv.index("--env-file") + 1])
    assert f"SPOT_WORK_URL={URL}" in file.read_text().splitlines()
    assert file.stat().st_mode & 0o777 == 0o600
    assert "pa55" not in " ".join(argv)
    assert "SPOT_WORK_URL" not in more
    # One whose client was killed holds name and GPU.
    assert ["docker", "rm", "--force", "--volumes", "gpu-spot-0"] in docker.ran


def test_each_start_takes_the_secret_as_it_is_then(workbench: Bench) -> None:
    """A rotated password: the worker that the broker refuses ends, and its successor has the new one."""
    workbench.secrets = lambda: {"SPOT_WORK_URL": "amqps://a:old@b"}
    workers = workbench.workers("echo $SPOT_WORK_URL", count=1)
    workers.tick()
    wait_until(lambda: workbench.processes[0].poll() is not None)
    workbench.secrets = lambda: {"SPOT_WORK_URL": "amqps://a:new@b"}
    workers.tick()
    workbench.clock.advance(2.0)
    workers.tick()
    lines = [process.stdout.readline() for process in workbench.processes if process.stdout]
    assert lines == [b"amqps://a:old@b\n", b"amqps://a:new@b\n"]


def test_without_its_secret_a_worker_waits_and_with_an_earlier_one_it_starts(workbench: Bench) -> None:
    workbench.secrets = no_secret
    workers = workbench.workers("exit 3", count=1)
    for pause in (2.0, 4.0):
        assert workers.tick()
        workbench.clock.advance(pause - 0.1)
        workers.tick()
        assert workbench.processes == []
        workbench.clock.advance(0.1)
    workbench.secrets = dict
    workers.tick()
    assert len(workbench.processes) == 1
    wait_until(lambda: workbench.processes[0].poll() is not None)
    workbench.secrets = no_secret
    workers.tick()
    workbench.clock.advance(300.0)
    workers.tick()
    assert len(workbench.processes) == 2


@pytest.mark.parametrize("text", ["", "pa55word", "https://a:pa55@b", "amqps://a:pa55@b c", "amqps://"])
def test_what_is_no_address_of_a_broker_is_not_shown(text: str) -> None:
    with pytest.raises(AgentError, match="secret queues/ocr: not a broker URL") as raised:
        queue.environment(QUEUE, text)
    assert "pa55" not in str(raised.value)
