"""Jobs on Kubernetes by Kueue's Workloads: a job that waits says why."""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

import pytest
from rich.console import Console

from gpu_spot.commands.deployed import jobs
from gpu_spot.jobs import cluster
from gpu_spot.jobs.cluster import ClusterJob, ClusterReader, cluster_jobs
from tests.kubernetes.entries import settings

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


def test_the_list_has_a_table_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[list[str], str]] = []

    def read(_: ClusterReader, names: list[str], namespace: str) -> list[ClusterJob]:
        asked.append((names, namespace))
        return [ClusterJob("resnet", "pending", QUOTA)]

    monkeypatch.setattr(cluster.ClusterReader, "read", read)
    arguments = argparse.Namespace(stack="dev")
    table = jobs._on_cluster(arguments, lambda _: None, "us-west-2", partial(settings))
    console = Console(width=200, record=True)
    console.print(table)
    assert "8 more needed" in " ".join(console.export_text().split())
    assert asked == [(["resnet"], "gpu-spot-dev")]
    on_instances = partial(settings, job={"runsOn": "instances"})
    assert jobs._on_cluster(arguments, lambda _: None, "us-west-2", on_instances) is None
