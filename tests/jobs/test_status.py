"""The status of a job: a table of snapshots and their phases."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from contracts import names
from contracts.agent.nodes import JobNodes
from contracts.jobs.item import JobItem
from gpu_spot.jobs import report
from gpu_spot.jobs.snapshot import JobSnapshot
from gpu_spot.jobs.status import Phase, job_status
from tests.jobs.snapshots import NOW, RUN, holding, host, job, job_attempt, row, worker
from tests.jobs.stack import Stack
from tests.node.configs import FakeClock
from userdata.agent.aws.experiments import NodeJobs

RUNNING_ATTEMPT = job_attempt(3, "i-1", 600, 5, stopped=0.0)
FINISHED_ATTEMPT = job_attempt(2, "i-0", 3000, 700, ended=NOW - 690, end="stopped")

FIRST, LAST, NEXT = host("i-1"), host("i-0", is_live=False), host("i-2")
WAITING = (worker("i-2", "waiting"),)
SAVING = (worker("i-1", "draining", deadline=NOW + 60),)

TABLE: list[tuple[str, JobSnapshot, Phase, str]] = [
    ("nothing has happened", job(), "pending", "Spot or On-Demand capacity is requested"),
    ("its first instance boots", job(hosts=(FIRST,)), "pending", "i-1 is booting"),
    ("the controller is paused", job(mode="paused"), "pending", "the controller is in mode paused"),
    (
        "another group prepares its dataset",
        job(waits_for="imagenet@2", prepared_by="imagenet-data"),
        *("preparing", "group imagenet-data prepares dataset imagenet@2"),
    ),
    (
        "its first volume is filled",
        job(row=holding("i-1", state=""), workers=(worker("i-1", "waiting"),), hosts=(FIRST,)),
        *("preparing", "i-1 prepares its volume"),
    ),
    (
        "it trains",
        job(row=holding("i-1"), workers=(worker("i-1"),), hosts=(FIRST,), attempts=(RUNNING_ATTEMPT,)),
        *("running", ""),
    ),
    (
        "it trains, with a standby instance",
        job(
            **{"row": holding("i-1"), "workers": (worker("i-1"), *WAITING)},
            **{"hosts": (FIRST, NEXT), "attempts": (RUNNING_ATTEMPT,)},
        ),
        *("running", ""),
    ),
    (
        "it has a notice",
        job(row=holding("i-1"), workers=(worker("i-1", deadline=NOW + 90),), hosts=(FIRST,)),
        *("interrupted", "i-1 terminates in 90 s"),
    ),
    (
        "it saves",
        job(row=holding("i-1"), workers=SAVING, hosts=(FIRST,)),
        *("interrupted", "i-1 terminates in 60 s"),
    ),
    (
        "its instance does not report",
        job(
            row=holding("i-1"), workers=(worker("i-1", ago=120),), hosts=(FIRST,), attempts=(RUNNING_ATTEMPT,)
        ),
        *("interrupted", "no heartbeat from i-1 for 5 s"),
    ),
    (
        "another instance prepares its volume",
        job(row=holding("i-2"), workers=WAITING, hosts=(LAST, NEXT), attempts=(FINISHED_ATTEMPT,)),
        *("moving", "i-2 prepares its volume"),
    ),
    (
        "another instance boots",
        job(row=row(), hosts=(LAST, NEXT), attempts=(FINISHED_ATTEMPT,)),
        *("moving", "i-2 is booting"),
    ),
    (
        "the previous instance still runs",
        job(row=row(), hosts=(host("i-0"), NEXT), attempts=(FINISHED_ATTEMPT,)),
        *("moving", "i-2 is booting"),
    ),
    (
        "another instance waits until the lease expires",
        job(
            **{"row": holding("i-0"), "workers": WAITING, "hosts": (NEXT,)},
            attempts=(job_attempt(2, "i-0", 3000, 200, stopped=0.0),),
        ),
        *("moving", "i-2 waits for i-0 to release the lease"),
    ),
    (
        "the lease of the preparing instance has expired",
        job(
            row=row(holder="i-2", lease_expires_at=NOW - 1),
            **{"workers": WAITING, "hosts": (NEXT,), "attempts": (FINISHED_ATTEMPT,)},
        ),
        *("moving", "i-2 waits for the lease"),
    ),
    (
        "the next instance is interrupted before it has the job",
        job(
            workers=(worker("i-2", "waiting", deadline=NOW + 50),),
            **{"row": row(), "hosts": (NEXT,), "attempts": (FINISHED_ATTEMPT,)},
        ),
        *("waiting for a host", "Spot or On-Demand capacity is requested"),
    ),
    ("no instance is left", job(row=row(), attempts=(FINISHED_ATTEMPT,)), "waiting for a host", ""),
    ("an agent that wrote no history has run it", job(row=row()), "waiting for a host", ""),
    ("a user has stopped it", job(row=row(), finished=RUN), "stopped", "its volume is kept"),
    (
        "a user has stopped it, and it saves",
        job(row=holding("i-1"), finished=RUN, workers=SAVING),
        *("stopped", "i-1 saves a checkpoint and releases the volume"),
    ),
    ("the target is 0", job(target=0), "stopped", "its target is 0"),
    ("it is done", job(row=row(state="done"), finished=RUN), "done", ""),
    ("it is done, but not yet recorded as finished", job(row=row(state="done")), "done", ""),
    (
        "it has failed",
        job(row=row(state="failed", reason="exit code 3"), finished=RUN),
        *("failed", "exit code 3"),
    ),
    (
        "an earlier revision was done",
        job(row=row(state="done", revision="b" * 40), finished="b" * 40),
        *("pending", ""),
    ),
    (
        "an earlier revision is stopped, this one runs",
        job(row=holding("i-1"), finished="b" * 40, workers=(worker("i-1"),), hosts=(FIRST,)),
        *("running", ""),
    ),
]


@pytest.mark.parametrize(
    ("snapshot", "phase", "reason"), [one[1:] for one in TABLE], ids=[one[0] for one in TABLE]
)
def test_status_of_a_snapshot(snapshot: JobSnapshot, phase: Phase, reason: str) -> None:
    status = job_status(snapshot)
    assert status.phase == phase, status
    assert status.reason.startswith(reason), status


def test_the_host_is_the_instance_that_holds_the_lease() -> None:
    both = (worker("i-1", deadline=NOW + 9), worker("i-2"))
    hosts = (host("i-1"), host("i-2"))
    assert job_status(job(row=holding("i-2"), workers=both, hosts=hosts)).host == hosts[1]
    assert job_status(job(row=holding("i-1"), workers=both, hosts=hosts)).host == hosts[0]


def agent(stack: Stack) -> NodeJobs:
    parameter = names.group_parameter("dev", "resnet", names.PARAMETER_FINISHED)
    return NodeJobs(stack("dynamodb"), stack("ssm"), stack.jobs, "resnet", RUN, parameter, FakeClock())


def node(stack: Stack, number: int) -> str:
    """Let an instance work as a node; return its id."""
    instance = stack.instance("resnet")
    stack.set_lease(f"resnet-node-{number}", instance, 1)
    stack.record_heartbeat("resnet", instance)
    return instance


def test_present_nodes_are_counted_and_a_job_below_its_minimum_waits(stack: Stack) -> None:
    stack.group("resnet", break_before_make=False)
    jobs = agent(stack)
    jobs.record_nodes(JobNodes(2, 3))
    jobs.mark("running")
    first = node(stack, 0)
    [listed] = stack.reader.reports()
    assert listed.status.phase == "waiting for a host"
    assert listed.status.reason == "1 of 3 nodes, needs 2; Spot or On-Demand capacity is requested"
    second = stack.instance("resnet")
    [listed] = stack.reader.reports()
    assert listed.status.reason == f"1 of 3 nodes, needs 2; {second} is booting"
    node(stack, 2)
    stack.record_attempt("resnet-node-0", job_attempt(1, first, 600, 0))
    [listed] = stack.reader.reports()
    assert (listed.status.phase, listed.status.reason) == ("running", "2 of 3 nodes, needs 2")
    assert report.to_json(listed)["nodes"] == {"present": 2, "min": 2, "max": 3}
    assert json.dumps(report.to_json(listed))
    one = stack.reader.report("resnet-node-0")
    assert len(one.timeline.attempts) == 1
    assert one.status.host.instance == first
    jobs.mark("done")
    jobs.publish_finished()
    assert [stack.reader.report(name).status.phase for name in ("resnet", "resnet-node-2")] == ["done"] * 2


def test_a_lease_that_has_expired_is_no_node() -> None:
    lost = JobItem(holder="i-1", lease_expires_at=NOW - 1)
    nodes = {"resnet-node-0": replace(lost, lease_expires_at=NOW + 60), "resnet-node-1": lost}
    snapshot = JobSnapshot("resnet", NOW, RUN, "", 3, row=JobItem(nodes=JobNodes(1, 3)), nodes=nodes)
    assert (snapshot.present_nodes, snapshot.node_summary) == (1, "1 of 3 nodes, needs 1")
