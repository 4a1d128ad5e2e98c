"""A job of several nodes, as `gpu-spot jobs` shows it."""

from __future__ import annotations

import json
from dataclasses import replace

from contracts import names
from contracts.agent.nodes import JobNodes
from contracts.jobs.item import JobItem
from gpu_spot.jobs import report
from gpu_spot.jobs.snapshot import JobSnapshot
from tests.jobs.snapshots import NOW, RUN, job_attempt
from tests.jobs.stack import Stack
from tests.node.clocks import FakeClock
from userdata.agent.aws.experiments import NodeJobs


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
    assert one.timeline is not None
    assert len(one.timeline.attempts) == 1
    assert one.status.host is not None
    assert one.status.host.instance == first
    jobs.mark("done")
    jobs.publish_finished()
    assert [stack.reader.report(name).status.phase for name in ("resnet", "resnet-node-2")] == ["done"] * 2


def test_a_lease_that_has_expired_is_no_node() -> None:
    lost = JobItem(holder="i-1", lease_expires_at=NOW - 1)
    nodes = {"resnet-node-0": replace(lost, lease_expires_at=NOW + 60), "resnet-node-1": lost}
    snapshot = JobSnapshot("resnet", NOW, RUN, "", 3, row=JobItem(nodes=JobNodes(1, 3)), nodes=nodes)
    assert (snapshot.present_nodes, snapshot.node_summary) == (1, "1 of 3 nodes, needs 1")
