"""``gpu-spot jobs`` on moto clients."""

from __future__ import annotations

import argparse
import json
import re
import time
from collections.abc import Iterator

import pytest
from botocore.exceptions import ClientError

from gpu_spot import cli
from gpu_spot.errors import AwsRefusalError
from gpu_spot.jobs import command as jobs
from gpu_spot.jobs.logs import format_message
from gpu_spot.jobs.reader import JobError, JobReader
from tests.docs.keys import documented
from tests.jobs.snapshots import NOW, job_attempt
from tests.jobs.stack import REGION, Stack

GROUP = "/gpu-spot/dev/instances/resnet"


def run(stack: Stack, capsys: pytest.CaptureFixture[str], *words: str, polls: int = 0) -> str:
    continue_polling: Iterator[bool] = iter([True] * polls)
    assert jobs.act(parsed(*words), stack, REGION, lambda: next(continue_polling, False)) == 0
    return capsys.readouterr().out


def parsed(*words: str) -> argparse.Namespace:
    return cli.parser().parse_args(["jobs", *words])


@pytest.fixture
def stack_with_job(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> Stack:
    monkeypatch.setattr(jobs, "JobReader", lambda *_: stack.reader)
    monkeypatch.setenv("COLUMNS", "110")
    stack.group("resnet")
    stack.start_training()
    stack.set_lease("resnet", "i-2", 2)
    first = job_attempt(
        1,
        "i-1",
        4000,
        3000,
        notice_at=NOW - 3010,
        cause="spot",
        ended=NOW - 2999,
        purchase_option="on-demand",
    )
    stack.record_attempt("resnet", first)
    stack.record_attempt(
        "resnet", job_attempt(2, "i-2", 2000, 5, stopped=0.0, zone="us-west-2b", resumed=NOW - 3100)
    )
    return stack


def test_a_list_and_one_job(stack_with_job: Stack, capsys: pytest.CaptureFixture[str]) -> None:
    assert "running" in run(stack_with_job, capsys)
    assert run(stack_with_job, capsys) == run(stack_with_job, capsys, "list")
    shown = " ".join(run(stack_with_job, capsys, "show", "resnet").split())
    for words in (
        "interruptions 1, 1 move to another zone",
        "lost work 1:40",
        "downtime 16:40 between hosts",
        "us-west-2a g6.xlarge on-demand 16:40 announced 1:40 16:40 $0.27",
        "us-west-2b g6.xlarge spot 33:15 running – –",
    ):
        assert words in shown


def test_json_is_printed(stack_with_job: Stack, capsys: pytest.CaptureFixture[str]) -> None:
    [listed] = json.loads(run(stack_with_job, capsys, "--stack", "dev", "list", "--json"))
    shown = json.loads(run(stack_with_job, capsys, "show", "resnet", "--json"))
    assert listed.items() <= shown.items()
    assert listed.keys() >= documented("jobs list")
    assert [attempt["ending"] for attempt in shown["timeline"]] == ["notice", "goes on"]
    assert (shown["lost_seconds"], shown["moves"]) == (100, 1)


def test_watch_polls_again(stack_with_job: Stack, capsys: pytest.CaptureFixture[str]) -> None:
    stack_with_job.calls.clear()
    run(stack_with_job, capsys, "list", "--watch", polls=3)
    assert stack_with_job.calls["BatchGetItem"] == 2 * (1 + 3)  # the job's item, and its workers


def test_control_actions_print_a_message(stack_with_job: Stack, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(stack_with_job, capsys, "stop", "resnet").startswith("stopped resnet: ")
    assert run(stack_with_job, capsys, "resume", "resnet").startswith("resumed resnet: ")


def test_control_actions_as_json_include_the_job(
    stack_with_job: Stack, capsys: pytest.CaptureFixture[str]
) -> None:
    stopped = json.loads(run(stack_with_job, capsys, "stop", "resnet", "--json"))
    assert stopped.keys() == documented("jobs stop")
    assert stopped["said"].startswith("stopped resnet: ")
    assert (stopped["action"], stopped["job"]["job"], stopped["job"]["state"]) == (
        *("stop", "resnet", "stopped"),
    )
    again = json.loads(run(stack_with_job, capsys, "resume", "resnet", "--json"))
    assert (again["action"], again["job"]["state"]) == ("resume", "running")
    assert json.loads(run(stack_with_job, capsys, "retry", "resnet", "--json"))["action"] == "retry"


def test_logs_are_followed_without_duplicates(
    stack: Stack, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time()  # CloudWatch Logs rejects old events

    def write(ago: float, text: str) -> None:
        events = [{"timestamp": int((now - ago) * 1000), "message": text}]
        stack("logs").put_log_events(logGroupName=GROUP, logStreamName="i-1/units", logEvents=events)

    monkeypatch.setattr(jobs, "JobReader", lambda *_: JobReader(stack, "dev", REGION, lambda: now))
    stack.group("resnet")
    with pytest.raises(JobError, match=f"log group {GROUP} does not exist"):
        run(stack, capsys, "logs", "resnet")
    stack("logs").create_log_group(logGroupName=GROUP)
    stack("logs").create_log_stream(logGroupName=GROUP, logStreamName="i-1/units")
    write(7200, "old")
    write(60, "step 7")
    [line] = run(stack, capsys, "logs", "resnet").splitlines()
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d i-1 step 7", line)
    assert "old" in run(stack, capsys, "logs", "resnet", "--since", "1d")
    document = json.loads(run(stack, capsys, "logs", "resnet", "--json"))
    assert document.keys() == documented("jobs logs")
    assert document["lines"] == [
        {"at": pytest.approx(now - 60, abs=0.01), "instance": "i-1", "stream": "units", "text": "step 7"}
    ]
    polls = iter(range(3))

    def wait() -> bool:
        poll = next(polls)
        if poll == 0:  # some lines arrive late
            write(50, "step 9")
            write(70, "step 6")
        return poll < 2

    jobs.act(parsed("logs", "resnet", "-f"), stack, REGION, wait)
    lines = [line.split()[-1] for line in capsys.readouterr().out.splitlines()]
    assert sorted(lines) == ["6", "7", "9"]


def test_json_lines_of_the_agent_are_formatted() -> None:
    line = {"time": "t", "level": "error", "event": "training failed", "fault": "host", "failures": 2}
    assert (
        format_message(f"Jan 5 ip gpu-spot-run: {json.dumps(line)}")
        == "error: training failed fault=host failures=2"
    )
    assert format_message("loss {0.3}") == "loss {0.3}"
    assert format_message('{"loss": 1}') == '{"loss": 1}'


def test_an_aws_error_is_one_line(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: object) -> None:
        raise ClientError({"Error": {"Code": "AccessDenied", "Message": "no"}}, "ListTables")

    stack.group("resnet")
    monkeypatch.setattr(stack("dynamodb"), "get_paginator", lambda name: type("P", (), {"paginate": refuse}))
    with pytest.raises(AwsRefusalError, match=r"^stack 'dev' in us-west-2: .*AccessDenied") as raised:
        jobs.act(parsed(), stack, REGION)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "words",
    [
        ["show"],
        ["logs", "x", "--since", "soon"],
        ["list", "--json", "--watch"],
        ["logs", "x", "-f", "--json"],
    ],
)
def test_wrong_usage_is_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parsed(*words)
    assert "usage: gpu-spot jobs" in capsys.readouterr().err
