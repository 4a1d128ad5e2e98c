"""Experiments that share a group: each is a job of its own to look at, and to let begin again."""

from __future__ import annotations

import json
from io import StringIO

import pytest
from rich.console import Console

from contracts import names
from gpu_spot.jobs import account
from gpu_spot.jobs.reader import JobError
from gpu_spot.jobs.steering import Steering
from gpu_spot.jobs.text import jobs_table
from tests.jobs.seen import RUN, stint
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
    """One is done, one has failed, one runs, one waits."""
    stack.group("resnet", run=GROUP_RUN, break_before_make=False)
    group = agent(stack, GroupJobs, "resnet", GROUP_RUN)
    assert isinstance(group, GroupJobs)
    group.name(NAMES)
    group.mark("running")
    done, failed, runs, _ = (agent(stack, ExperimentJobs, name, RUN) for name in NAMES)
    done.mark("done")
    done.take_down()  # the group goes on
    failed.mark("failed", "exit code 3")
    runs.mark("running")
    instance = stack.instance("resnet")
    stack.hold(NAMES[2], instance, 1)
    stack.beat("resnet", instance)
    stack.wrote(NAMES[2], stint(1, instance, 600, 0))
    return stack


def test_each_is_listed_behind_its_group(shared: Stack) -> None:
    listed = shared.reader.listed()
    assert [one.seen.name for one in listed] == ["resnet", *NAMES]
    assert [one.standing.phase for one in listed] == ["running", "done", "failed", "running", "pending"]
    assert listed[0].standing.why == "1 of 4 experiments done, 1 running, 1 failed"
    assert listed[4].standing.why == "waits for its turn in resnet"
    assert listed[3].standing.host is not None
    assert json.dumps([account.to_json(one) for one in listed])
    console = Console(file=StringIO(), width=160)
    console.print(jobs_table(listed, "dev"))
    assert NAMES[3] in console.file.getvalue()  # type: ignore[attr-defined]


def test_one_is_shown_with_its_own_story(shared: Stack) -> None:
    told = shared.reader.shown(NAMES[2])
    assert told.story is not None
    assert len(told.story.chapters) == 1
    with pytest.raises(JobError, match="there is none; the stack has resnet"):
        shared.reader.shown("resnet-9-abcdef")


def test_a_failed_one_begins_again_and_brings_its_group_back(shared: Stack) -> None:
    group = agent(shared, GroupJobs, "resnet", GROUP_RUN)
    group.mark("failed", "1 of 4 failed")
    group.take_down()
    steering = Steering(shared, "dev", shared.reader)
    assert steering.retry(NAMES[1]).startswith(f"{NAMES[1]} begins again")
    assert not agent(shared, ExperimentJobs, NAMES[1], RUN).finished()
    assert not group.finished()
    assert shared.finished("resnet") == "none"
    with pytest.raises(JobError, match="shares the instances of 'resnet'"):
        steering.stop(NAMES[2])


def test_a_group_begins_again_with_all_that_have_failed(shared: Stack) -> None:
    agent(shared, ExperimentJobs, NAMES[2], RUN).mark("failed", "exit code 4")
    agent(shared, GroupJobs, "resnet", GROUP_RUN).mark("failed", "2 of 4 failed")
    Steering(shared, "dev", shared.reader).retry("resnet")
    stand = [agent(shared, ExperimentJobs, name, RUN).finished() for name in NAMES]
    assert stand == [True, False, False, False]
