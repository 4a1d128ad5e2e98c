"""Secrets reach a command's environment, and nothing that anybody else can read."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.node.bench import Bench as JobBench
from tests.node.units import CommandHost
from tests.node.workbench import Bench as WorkBench
from tests.waiting import TIMEOUT_SECONDS
from userdata.agent.machine.errors import AgentError
from userdata.agent.work import secret_variables
from userdata.agent.work.training.job_container import JobContainer, Mounts

CANARY = "canary-5f1d9c7e"
VALUES = {"hf": f"{CANARY}\n", "json": f'{{"key": "{CANARY}", "many": ["{CANARY}"], "": ""}}'}


def secret(name: str) -> str:
    if name not in VALUES:
        raise AgentError(f"secret {name}: ResourceNotFoundException")
    return VALUES[name]


def read(**secrets: str) -> dict[str, str]:
    return secret_variables.read(secrets, secret, lambda name: f"parameter of {name}")


def test_a_secret_is_a_text_a_member_of_an_object_or_a_parameter() -> None:
    found = read(A="hf", B="json:key", C="ssm:/team/token")
    assert found == {"A": CANARY, "B": CANARY, "C": "parameter of /team/token"}


@pytest.mark.parametrize(
    "source", ["none", "json:other", "json:many", "hf:key", "empty", "lines", "nul", "list:0"]
)
def test_what_cannot_be_a_variable_is_named_without_its_value(
    source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {
        "empty": "\n",
        "lines": f"{CANARY}\nb",
        "nul": f"{CANARY}\0",
        "list": f'["{CANARY}"]',
    }.items():
        monkeypatch.setitem(VALUES, name, value)
    with pytest.raises(AgentError, match=source.partition(":")[0]) as caught:
        read(A=source)
    assert CANARY not in str(caught.value)


def command_lines() -> Iterator[str]:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            yield path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue  # it has ended


def assert_nowhere(folder: Path, records: list[logging.LogRecord], sent: object) -> None:
    """No command line, log, stored text or readable file has the canary."""
    lines = list(command_lines())
    assert any("GPU_SPOT" in line or "sleep 300" in line for line in lines), "nothing was looked at"
    assert not [line for line in lines if CANARY in line]
    assert not [record for record in records if CANARY in str(record.__dict__)]
    assert CANARY not in repr(sent)
    readable = [path for path in folder.rglob("*") if path.is_file() and path.stat().st_mode & 0o077]
    assert not [path for path in readable if CANARY.encode() in path.read_bytes()]


def wait_for(path: Path) -> None:
    end = time.monotonic() + TIMEOUT_SECONDS
    while not path.exists() and time.monotonic() < end:
        time.sleep(0.01)
    assert path.exists()


def test_no_trace_of_a_workers_secret_but_its_environment(
    workbench: WorkBench, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    caplog.set_level(logging.DEBUG)
    workbench.secrets = lambda: read(HF_TOKEN="hf", KEY="json:key")
    head, tail = CANARY[:6], CANARY[6:]
    script = (
        f'test "$HF_TOKEN" = "{head}""{tail}" && test -n "$KEY" && touch {tmp_path}/has; echo up; '
        "sleep 300 & wait"  # a shell that replaces itself has no command line for a moment
    )
    workers = workbench.started(script, count=1)
    wait_for(tmp_path / "has")
    workers.tick()
    started = [process.args for process in workbench.processes]  # `env` has gone from /proc by now
    assert_nowhere(tmp_path, caplog.records, [started, workbench.registry.__dict__])


def test_no_trace_of_a_jobs_secret_but_its_environment(
    bench: JobBench, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    trainer = bench.trainer(
        "test ${#HF_TOKEN} = 15 && touch has; sleep 300 & wait", secrets=lambda: read(HF_TOKEN="hf")
    )
    seen: list[bool] = []

    def look(seconds: float) -> None:
        if (bench.tmp / "has").exists() and not seen:
            started = [process.args for process in bench.processes]
            assert_nowhere(bench.tmp, caplog.records, [started, bench.registry.__dict__, bench.job.__dict__])
            seen.append(True)
            trainer.stop()
        time.sleep(0.01)

    bench.clock.on_sleep = look
    trainer.run()
    assert seen


def test_a_jobs_secret_that_is_missing_is_the_reason_of_its_failure(bench: JobBench) -> None:
    bench.stand_still()
    assert bench.trainer("true", secrets=lambda: read(HF_TOKEN="none"), restarts=0).run() == "failed"
    assert not bench.starts


def test_a_containers_secret_is_in_a_file_of_root(tmp_path: Path) -> None:
    container = JobContainer(
        CommandHost(), "resnet", "w@sha256:" + "0" * 64, "root", Mounts(()), tmp_path, str, None, {}
    )
    line = container.start(["train"], {"HF_TOKEN": CANARY}, tmp_path)
    assert CANARY not in str(line.argv)
    assert CANARY not in str(line.environment)
    file = tmp_path / "job.env"
    assert f"HF_TOKEN={CANARY}\n" in file.read_text()
    assert file.stat().st_mode & 0o777 == 0o600
