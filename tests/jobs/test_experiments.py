"""Experiments that share a group: each is read and retried as a job."""

from __future__ import annotations

import json
from io import StringIO

import pytest
from rich.console import Console

from contracts import names
from gpu_spot.jobs import report
from gpu_spot.jobs.reader import JobError
from gpu_spot.jobs.steering import JobControl
from gpu_spot.jobs.text import jobs_table
from tests.jobs.snapshots import RUN, job_attempt
from tests.jobs.stack import Stack
from tests.node.clocks import FakeClock
from userdata.agent.aws.experiments import ExperimentJobs, GroupJobs
from userdata.agent.aws.jobs import Jobs

GROUP_RUN = f"{RUN}/abcdef"
NAMES = [f"resnet-{number}-abcdef" for number in range(4)]


def agent(stack: Stack, kind: type[Jobs], job: str, run: str) -> Jobs:
    parameter = names.group_parameter("dev", "resnet", names.PARAMETER_FINISHED)
    return kind(stack("dynamodb"), stack("ssm"), stack.jobs, job, run, parameter, FakeClock())


@pytest.fixture
def shared(stack: Stack) -> Stack:
    """One experiment is done, one has failed, one runs, one waits."""
    stack.group("resnet", run=GROUP_RUN, break_before_make=False)
    group = agent(stack, GroupJobs, "resnet", GROUP_RUN)
    assert isinstance(group, GroupJobs)
    group.record_names(NAMES)
    group.mark("running")
    done, failed, runs, _ = (agent(stack, ExperimentJobs, name, RUN) for name in NAMES)
    done.mark("done")
    done.publish_finished()  # the group goes on
    failed.mark("failed", "exit code 3")
    runs.mark("running")
    instance = stack.instance("resnet")
    stack.set_lease(NAMES[2], instance, 1)
    stack.record_heartbeat("resnet", instance)
    stack.record_attempt(NAMES[2], job_attempt(1, instance, 600, 0))
    return stack


def test_experiments_are_listed_after_their_group(shared: Stack) -> None:
    listed = shared.reader.reports()
    assert [one.snapshot.name for one in listed] == ["resnet", *NAMES]
    assert [one.status.phase for one in listed] == ["running", "done", "failed", "running", "pending"]
    assert listed[0].status.reason == "1 of 4 experiments done, 1 running, 1 failed"
    assert listed[4].status.reason == "waiting for an instance of resnet"
    assert listed[3].status.host is not None
    assert json.dumps([report.to_json(one) for one in listed])
    console = Console(file=StringIO(), width=160)
    console.print(jobs_table(listed, "dev"))
    assert NAMES[3] in console.file.getvalue()  # type: ignore[attr-defined]


def test_an_experiment_has_its_own_timeline(shared: Stack) -> None:
    report = shared.reader.report(NAMES[2])
    assert report.timeline is not None
    assert len(report.timeline.attempts) == 1
    with pytest.raises(JobError, match="does not exist; jobs of the stack: resnet"):
        shared.reader.report("resnet-9-abcdef")


def test_retry_of_an_experiment_restarts_its_group(shared: Stack) -> None:
    group = agent(shared, GroupJobs, "resnet", GROUP_RUN)
    group.mark("failed", "1 of 4 failed")
    group.publish_finished()
    job_control = JobControl(shared, "dev", shared.reader)
    assert job_control.retry(NAMES[1]).startswith(f"{NAMES[1]} restarts")
    assert not agent(shared, ExperimentJobs, NAMES[1], RUN).is_finished()
    assert not group.is_finished()
    assert shared.finished("resnet") == "none"
    with pytest.raises(JobError, match="shares the instances of 'resnet'"):
        job_control.stop(NAMES[2])


def test_retry_of_a_group_restarts_all_failed_experiments(shared: Stack) -> None:
    agent(shared, ExperimentJobs, NAMES[2], RUN).mark("failed", "exit code 4")
    agent(shared, GroupJobs, "resnet", GROUP_RUN).mark("failed", "2 of 4 failed")
    JobControl(shared, "dev", shared.reader).retry("resnet")
    finished = [agent(shared, ExperimentJobs, name, RUN).is_finished() for name in NAMES]
    assert finished == [True, False, False, False]
