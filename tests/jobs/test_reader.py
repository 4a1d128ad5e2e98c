"""What is read of a stack's jobs, and in how many calls."""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest
from botocore.exceptions import ClientError

from contracts.jobs.attempt import ATTEMPTS_RETAINED
from gpu_spot import cli
from gpu_spot.jobs import cluster, report
from gpu_spot.jobs import command as jobs
from gpu_spot.jobs.cluster import ClusterJob, ClusterReader, cluster_jobs
from gpu_spot.jobs.reader import JobError, JobReader, find_tables
from tests.jobs.snapshots import NOW, RUN, job_attempt
from tests.jobs.stack import REGION, Stack
from tests.kubernetes.entries import settings
from tests.models import create_table


def test_a_running_job_is_read_from_the_records_of_its_agent(stack: Stack) -> None:
    stack.group("resnet")
    stack.group("inference", run="")
    instance = stack.start_training()
    report = stack.reader.report("resnet")
    assert (report.status.phase, report.snapshot.run) == ("running", RUN)
    assert (report.status.host.instance, report.status.host.market) == (instance, "on-demand")
    assert [one.snapshot.name for one in stack.reader.reports()] == ["resnet"]


def test_the_calls_do_not_grow_with_the_life_of_a_job(stack: Stack) -> None:
    stack.group("resnet")
    stack.start_training()
    stack.set_lease("resnet", "i-1", 250)
    for token in range(151, 251):
        stack.record_attempt(
            "resnet", job_attempt(token, f"i-{token}", 90_000 - 300 * token, 89_800 - 300 * token)
        )
    stack.calls.clear()
    report = stack.reader.report("resnet")
    assert len(report.timeline.attempts) == ATTEMPTS_RETAINED
    assert report.timeline.is_cut
    assert stack.calls == {
        "GetParametersByPath": 1,
        "ListTables": 1,
        "BatchGetItem": 3,
        "DescribeInstances": 1,
        "GetCallerIdentity": 1,
        "DescribeSpotPriceHistory": 1,
    }


def test_a_list_asks_once_for_all_but_for_their_workers(stack: Stack) -> None:
    for number in range(5):
        stack.group(f"job-{number}")
    stack.start_training("job-3")
    stack.calls.clear()
    found = stack.reader.reports()
    assert [one.status.phase for one in found] == ["pending"] * 3 + ["running", "pending"]
    assert stack.calls == {
        "GetParametersByPath": 3,  # ten on a page, and moto's last one is empty
        "ListTables": 1,
        "BatchGetItem": 1 + 1,  # workers of the one job with an instance
        "DescribeInstances": 1,
        "GetCallerIdentity": 1,
    }


def test_unprocessed_keys_are_requested_again_a_limited_number_of_times(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    stack.group("resnet")
    stack.agent().mark("done")
    dynamodb, asked = stack("dynamodb"), list[Any]()
    real = dynamodb.batch_get_item

    def throttled(RequestItems: Any) -> Any:  # noqa: N803 - boto3's name
        asked.append(RequestItems)
        nothing = {"Responses": {}, "UnprocessedKeys": RequestItems}
        return real(RequestItems=RequestItems) if len(asked) == 3 else nothing

    dynamodb.batch_get_item = throttled
    monkeypatch.setattr(time, "sleep", lambda _: None)
    assert [one.status.phase for one in stack.reader.reports()] == ["done"]
    assert len(asked) == 3
    asked[:] = [None] * 3
    with pytest.raises(ClientError, match=r"1 items of .* were not read"):
        stack.reader.reports()


def test_a_malformed_attempt_is_skipped(stack: Stack) -> None:
    stack.group("resnet")
    stack.set_lease("resnet", "i-2", 2)
    stack.record_attempt("resnet", job_attempt(1, "i-1", 900, 300))
    stack("dynamodb").put_item(TableName=stack.jobs, Item={"job": {"S": "resnet#02"}, "token": {"N": "2"}})
    assert [one.token for one in stack.reader.read("resnet").attempts] == [1]
    stack.record_attempt(
        "resnet", replace(job_attempt(1, "i-1", 900, 300), token=101)
    )  # not a lease that was ever given
    assert stack.reader.read("resnet").attempts == ()


def test_a_missing_job_is_reported_in_one_line(stack: Stack) -> None:
    with pytest.raises(JobError, match=r"^job 'bert' does not exist; jobs of the stack: none$"):
        stack.reader.read("bert")
    stack.group("resnet")
    stack.group("atlas")
    with pytest.raises(JobError, match=r"^job 'bert' does not exist; jobs of the stack: atlas, resnet$"):
        stack.reader.read("bert")


def test_the_tables_are_the_stack_s_own(stack: Stack) -> None:
    create_table(stack("dynamodb"), "gpu-spot-dev-jobs-archive", "job")
    assert find_tables(stack("dynamodb"), "dev").jobs == stack.jobs
    with pytest.raises(JobError, match="stack 'prod' must have one table gpu-spot-prod-jobs-…, not none"):
        find_tables(stack("dynamodb"), "prod")


def test_a_job_waits_for_its_dataset_but_its_preparation_does_not(stack: Stack) -> None:
    stack.group("vit", dataset="atlas@1", prepared_by="atlas-data")
    stack.group("atlas-data", dataset="atlas@1", prepared_by="atlas-data", run=f"{RUN}/atlas@1")
    stack.parameter("atlas-data", "prepared", "none")
    assert {one.snapshot.name: one.status.phase for one in stack.reader.reports()} == {
        "vit": "preparing",
        "atlas-data": "pending",
    }
    stack.parameter("atlas-data", "prepared", "atlas@1")
    assert stack.reader.read("vit").waits_for == ""


def test_the_time_is_aws_s_own(stack: Stack) -> None:
    stack.group("resnet")
    seen = JobReader(stack, "dev", REGION).read("resnet")
    assert abs(seen.now - datetime.now(UTC).timestamp()) < 600


def test_the_report_has_the_steps_of_the_instance_that_runs_the_job(stack: Stack) -> None:
    stack.group("resnet")
    instance = stack.start_training()
    job_report = stack.reader.report("resnet")
    seen = replace(job_report.snapshot, steps={"i-9": (7, None), instance: (40, 200)})
    shown = report.to_json(replace(job_report, snapshot=seen))
    assert (shown["state"], shown["step"], shown["steps"]) == ("running", 40, 200)
    assert shown["host"]["instance"] == instance
    assert shown["at"] == NOW


QUOTA = (
    "couldn't assign flavors to pod set main: insufficient unused quota for nvidia.com/gpu in flavor "
    "gpu-spot-dev.jobs, 8 more needed"
)


def workload(
    name: str, *conditions: tuple[str, str, str, str], created: str = "2026-11-01"
) -> dict[str, Any]:
    keys = ("type", "status", "reason", "message")
    return {
        "metadata": {"ownerReferences": [{"kind": "Job", "name": name}], "creationTimestamp": created},
        "status": {"conditions": [dict(zip(keys, one, strict=True)) for one in conditions]},
    }


RESERVED = ("QuotaReserved", "True", "QuotaReserved", "Quota reserved")
ADMITTED = ("Admitted", "True", "Admitted", "The workload is admitted")


@pytest.mark.parametrize(
    ("conditions", "state", "reason"),
    [
        ([("QuotaReserved", "False", "Pending", QUOTA)], "pending", QUOTA),
        ([], "pending", "Kueue has not considered it yet"),
        ([("Evicted", "True", "PodsReadyTimeout", "Exceeded")], "pending", "Exceeded"),
        ([RESERVED, ADMITTED], "starting", "waits for nodes and pods"),
        (
            [RESERVED, ADMITTED, ("PodsReady", "False", "WaitForStart", "Not all pods")],
            "starting",
            "Not all pods",
        ),
        (
            [RESERVED, ADMITTED, ("PodsReady", "False", "WaitForRecovery", "At least one pod has failed")],
            "recovering",
            "At least one pod has failed",
        ),
        ([RESERVED, ADMITTED, ("PodsReady", "True", "Started", "All")], "running", ""),
        ([RESERVED, ADMITTED, ("Finished", "True", "Succeeded", "Done")], "done", "Done"),
        ([RESERVED, ADMITTED, ("Finished", "True", "Failed", "Back-off")], "failed", "Back-off"),
    ],
)
def test_the_state_and_the_reason(
    conditions: list[tuple[str, str, str, str]], state: str, reason: str
) -> None:
    assert cluster_jobs(["resnet"], [workload("resnet", *conditions)]) == [
        ClusterJob("resnet", state, reason)
    ]


def test_a_job_without_a_workload_is_unknown_and_the_newest_workload_counts() -> None:
    old = workload("resnet", ("Finished", "True", "Failed", "old"), created="2026-10-01")
    new = workload("resnet", RESERVED, ADMITTED)
    assert [job.state for job in cluster_jobs(["resnet", "other"], [new, old])] == ["starting", "unknown"]


class Eks:
    def describe_cluster(self, name: str) -> dict[str, Any]:
        raise OSError(f"no {name}")


def test_a_cluster_that_cannot_be_read_is_shown_as_such() -> None:
    [job] = ClusterReader(Eks(), "research", "us-west-2", lambda *_: "t").read(["resnet"], "gpu-spot-dev")
    assert (job.state, job.reason) == ("unknown", "cluster 'research': no research")


def test_the_list_has_them_too(
    stack: Stack, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[tuple[list[str], str]] = []

    def read(_: ClusterReader, names: list[str], namespace: str) -> list[ClusterJob]:
        asked.append((names, namespace))
        return [ClusterJob("resnet", "pending", QUOTA)]

    monkeypatch.setattr(cluster.ClusterReader, "read", read)
    monkeypatch.setattr(jobs, "JobReader", lambda *_: stack.reader)
    monkeypatch.setenv("COLUMNS", "200")
    stack.group("bert")
    for words in ([], ["list", "--json"]):
        jobs.act(cli.parser().parse_args(["jobs", *words]), stack, REGION, settings=partial(settings))
    table, _, document = capsys.readouterr().out.partition("[\n")
    assert "8 more needed" in " ".join(table.split())
    bert, resnet = json.loads(f"[{document}")
    assert (bert["job"], resnet["job"], resnet["state"]) == ("bert", "resnet", "pending")
    assert bert.keys() == resnet.keys()
    assert asked == [(["resnet"], "gpu-spot-dev")] * 2
    on_instances = partial(settings, job={"runsOn": "instances"})
    arguments = argparse.Namespace(stack="dev")
    assert jobs._on_cluster(arguments, lambda _: None, "us-west-2", on_instances) == ("", [])
