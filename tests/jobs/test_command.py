"""``gpu-spot jobs`` as a user gives it, on moto's clients."""

from __future__ import annotations

import argparse
import json
import re
import time
from collections.abc import Iterator

import pytest
from botocore.exceptions import ClientError

from gpu_spot import cli
from gpu_spot.commands.deployed import jobs
from gpu_spot.jobs.logs import said
from gpu_spot.jobs.reader import JobError, JobReader
from tests.docs.keys import documented
from tests.jobs.seen import NOW, stint
from tests.jobs.stack import REGION, Stack

GROUP = "/gpu-spot/dev/instances/resnet"


def told(stack: Stack, capsys: pytest.CaptureFixture[str], *words: str, looks: int = 0) -> str:
    left: Iterator[bool] = iter([True] * looks)
    assert jobs.act(parsed(*words), stack, REGION, lambda: next(left, False)) == 0
    return capsys.readouterr().out


def parsed(*words: str) -> argparse.Namespace:
    return cli.parser().parse_args(["jobs", *words])


@pytest.fixture
def told_stack(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> Stack:
    monkeypatch.setattr(jobs, "JobReader", lambda *_: stack.reader)
    monkeypatch.setenv("COLUMNS", "110")
    stack.group("resnet")
    stack.trains()
    stack.hold("resnet", "i-2", 2)
    first = stint(1, "i-1", 4000, 3000, told=NOW - 3010, cause="spot", ended=NOW - 2999, market="on-demand")
    stack.wrote("resnet", first)
    stack.wrote("resnet", stint(2, "i-2", 2000, 5, stopped=0.0, zone="us-west-2b", resumed=NOW - 3100))
    return stack


def test_a_list_and_one_job(told_stack: Stack, capsys: pytest.CaptureFixture[str]) -> None:
    assert "running" in told(told_stack, capsys)
    assert told(told_stack, capsys) == told(told_stack, capsys, "list")
    shown = " ".join(told(told_stack, capsys, "show", "resnet").split())
    for words in (
        "interruptions 1, 1 move to another zone",
        "redone 1:40 of it",
        "away 16:40 between hosts",
        "us-west-2a g6.xlarge on-demand 16:40 announced 1:40 16:40 $0.27",
        "us-west-2b g6.xlarge spot 33:15 goes on – –",
    ):
        assert words in shown


def test_json(told_stack: Stack, capsys: pytest.CaptureFixture[str]) -> None:
    [listed] = json.loads(told(told_stack, capsys, "--stack", "dev", "list", "--json"))
    shown = json.loads(told(told_stack, capsys, "show", "resnet", "--json"))
    assert listed.items() <= shown.items()
    assert listed.keys() >= documented("jobs list")
    assert [one["ending"] for one in shown["timeline"]] == ["notice", "goes on"]
    assert (shown["lost_seconds"], shown["moves"]) == (100, 1)


def test_a_live_table_looks_again(told_stack: Stack, capsys: pytest.CaptureFixture[str]) -> None:
    told_stack.calls.clear()
    told(told_stack, capsys, "list", "--watch", looks=3)
    assert told_stack.calls["BatchGetItem"] == 1 + 3


def test_steering_prints_what_was_done(told_stack: Stack, capsys: pytest.CaptureFixture[str]) -> None:
    assert told(told_stack, capsys, "stop", "resnet").startswith("stopped resnet: ")
    assert told(told_stack, capsys, "resume", "resnet").startswith("resumed resnet: ")


def test_steering_as_json_has_the_job_right_after(
    told_stack: Stack, capsys: pytest.CaptureFixture[str]
) -> None:
    stopped = json.loads(told(told_stack, capsys, "stop", "resnet", "--json"))
    assert stopped.keys() == documented("jobs stop")
    assert stopped["said"].startswith("stopped resnet: ")
    assert (stopped["action"], stopped["job"]["job"], stopped["job"]["state"]) == (
        *("stop", "resnet", "stopped"),
    )
    again = json.loads(told(told_stack, capsys, "resume", "resnet", "--json"))
    assert (again["action"], again["job"]["state"]) == ("resume", "running")
    assert json.loads(told(told_stack, capsys, "retry", "resnet", "--json"))["action"] == "retry"


def test_logs_are_followed_and_each_line_is_told_once(
    stack: Stack, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time()  # CloudWatch Logs takes no lines of another year

    def write(ago: float, text: str) -> None:
        events = [{"timestamp": int((now - ago) * 1000), "message": text}]
        stack("logs").put_log_events(logGroupName=GROUP, logStreamName="i-1/units", logEvents=events)

    monkeypatch.setattr(jobs, "JobReader", lambda *_: JobReader(stack, "dev", REGION, lambda: now))
    stack.group("resnet")
    with pytest.raises(JobError, match=f"log group {GROUP}: there is none"):
        told(stack, capsys, "logs", "resnet")
    stack("logs").create_log_group(logGroupName=GROUP)
    stack("logs").create_log_stream(logGroupName=GROUP, logStreamName="i-1/units")
    write(7200, "old")
    write(60, "step 7")
    [line] = told(stack, capsys, "logs", "resnet").splitlines()
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d i-1 step 7", line)
    assert "old" in told(stack, capsys, "logs", "resnet", "--since", "1d")
    found = json.loads(told(stack, capsys, "logs", "resnet", "--json"))
    assert found.keys() == documented("jobs logs")
    assert found["lines"] == [
        {"at": pytest.approx(now - 60, abs=0.01), "instance": "i-1", "stream": "units", "text": "step 7"}
    ]
    looks = iter(range(3))

    def wait() -> bool:
        look = next(looks)
        if look == 0:  # some lines come late
            write(50, "step 9")
            write(70, "step 6")
        return look < 2

    jobs.act(parsed("logs", "resnet", "-f"), stack, REGION, wait)
    lines = [line.split()[-1] for line in capsys.readouterr().out.splitlines()]
    assert sorted(lines) == ["6", "7", "9"]


def test_the_agents_own_lines_are_read_as_people_read() -> None:
    line = {"time": "t", "level": "error", "event": "training failed", "fault": "host", "failures": 2}
    assert (
        said(f"Jan 5 ip gpu-spot-run: {json.dumps(line)}") == "error: training failed fault=host failures=2"
    )
    assert said("loss {0.3}") == "loss {0.3}"
    assert said('{"loss": 1}') == '{"loss": 1}'


def test_what_aws_refuses_is_told_in_one_line(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: object) -> None:
        raise ClientError({"Error": {"Code": "AccessDenied", "Message": "no"}}, "ListTables")

    stack.group("resnet")
    monkeypatch.setattr(stack("dynamodb"), "get_paginator", lambda name: type("P", (), {"paginate": refuse}))
    with pytest.raises(JobError, match=r"^stack 'dev' in us-west-2: .*AccessDenied") as told:
        jobs.act(parsed(), stack, REGION)
    assert "\n" not in str(told.value)


@pytest.mark.parametrize(
    "words",
    [
        ["show"],
        ["logs", "x", "--since", "soon"],
        ["list", "--json", "--watch"],
        ["logs", "x", "-f", "--json"],
    ],
)
def test_wrong_usage(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parsed(*words)
    assert "usage: gpu-spot jobs" in capsys.readouterr().err
