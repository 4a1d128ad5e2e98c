"""Stop, resume and retry: their effects by state, and that they are idempotent."""

from __future__ import annotations

import json
from collections.abc import Callable
from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from contracts import names
from gpu_spot.jobs import report
from gpu_spot.jobs.reader import JobError
from gpu_spot.jobs.steering import JobControl
from gpu_spot.jobs.text import jobs_table
from lambdas.aws.memory import MemoryStore
from lambdas.core.capacity.memory import Memory
from lambdas.core.money.bill import Bill
from tests.jobs.snapshots import NOW, RUN, job_attempt
from tests.jobs.stack import SUFFIX, Stack
from tests.node.configs import FakeClock
from userdata.agent.aws.experiments import ExperimentJobs, GroupJobs
from userdata.agent.aws.jobs import Jobs


@pytest.fixture
def job_control(stack: Stack) -> JobControl:
    stack.group("resnet")
    return JobControl(stack, "dev", stack.reader)


def row(stack: Stack) -> dict[str, Any]:
    key = {"job": {"S": "resnet"}}
    return dict(stack("dynamodb").get_item(TableName=stack.jobs, Key=key)["Item"])


def test_a_stopped_run_counts_as_ended_until_it_is_resumed(stack: Stack, job_control: JobControl) -> None:
    instance = stack.start_training()
    assert (
        job_control.stop("resnet")
        == f"stopped resnet: {instance} saves a checkpoint and terminates; its volume is kept"
    )
    assert stack.finished("resnet") == RUN
    assert stack.reader.report("resnet").status.phase == "stopped"
    assert job_control.stop("resnet") == "resnet is already stopped"
    assert not stack.agent().is_finished()  # the job has no outcome
    assert job_control.resume("resnet") == "resumed resnet: an instance is requested"
    assert stack.finished("resnet") == "none"
    assert job_control.resume("resnet") == "resnet is not stopped but running"


def test_a_failed_run_begins_again_with_nothing_counted(stack: Stack, job_control: JobControl) -> None:
    agent = stack.agent()
    agent.count_host_fault(5.0)
    agent.mark("failed", "exit code 3")
    agent.publish_finished()
    assert agent.is_finished()
    assert stack.reader.report("resnet").status.reason == "exit code 3"
    assert job_control.retry("resnet") == "resnet restarts, retry number 1"
    assert (agent.is_finished(), agent.retries(), stack.finished("resnet")) == (False, 1, "none")
    assert row(stack).keys().isdisjoint({"state", "reason", "hostFaults"})
    assert job_control.retry("resnet") == "resnet has not failed but is pending"
    agent.mark("failed", "exit code 4")
    assert job_control.retry("resnet") == "resnet restarts, retry number 2"
    assert stack.agent(revision="b" * 40).retries() == 0


def test_a_retry_that_breaks_off_leaves_a_run_that_can_be_resumed(
    stack: Stack, job_control: JobControl, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = stack.agent()
    agent.mark("failed", "exit code 3")
    agent.publish_finished()

    def break_off(**_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as broken:
        broken.setattr(stack("ssm"), "put_parameter", break_off)
        with pytest.raises(KeyboardInterrupt):
            job_control.retry("resnet")
    with pytest.raises(JobError, match="is stopped, not failed; use `gpu-spot jobs resume`"):
        job_control.retry("resnet")
    job_control.resume("resnet")
    assert (agent.is_finished(), stack.finished("resnet")) == (False, "none")


def spent(stack: Stack, dollars: float) -> None:
    stack.group("resnet", budget=10.0, own_prices={"g6.xlarge": 1.0})
    store = MemoryStore(stack("dynamodb"), f"gpu-spot-dev-memory-{SUFFIX}")
    store.save("resnet", Memory(bill=Bill(RUN, dollars, NOW, {})), None, 0, NOW)


def test_a_budget_is_added_to_the_control_parameter(stack: Stack, job_control: JobControl) -> None:
    spent(stack, 10.5)
    stack.parameter("resnet", "control", '{"mode": "manual", "onDemand": 1}')
    assert stack.reader.report("resnet").status.phase == "stopped"
    with pytest.raises(
        JobError, match=r"^the budget of job 'resnet', \$10.00, is spent; set --budget above 10.50"
    ):
        job_control.resume("resnet")
    with pytest.raises(JobError, match=r"--budget must be above 10.50, which is already spent, not 10.5"):
        job_control.resume("resnet", 10.5)
    assert job_control.resume("resnet", 25.0).startswith("resumed resnet: an instance is requested")
    name = names.group_parameter("dev", "resnet", names.PARAMETER_CONTROL)
    value = stack("ssm").get_parameter(Name=name)["Parameter"]["Value"]
    assert json.loads(value) == {"mode": "manual", "onDemand": 1, "budget": 25.0}
    snapshot = stack.reader.read("resnet")
    assert (snapshot.budget, snapshot.spent, snapshot.is_over_budget) == (25.0, 10.5, False)


def test_a_running_job_can_get_a_higher_budget_but_no_first_budget(
    stack: Stack, job_control: JobControl
) -> None:
    with pytest.raises(JobError, match=r"has no budget; set training\[\]\.budget in the stack file"):
        job_control.resume("resnet", 25.0)
    spent(stack, 9.0)
    stack.start_training()
    message = job_control.resume("resnet", 25.0)
    assert message == "resnet is not stopped but running, with a new budget of $25.00"


def test_concurrent_retries_count_once(stack: Stack, job_control: JobControl) -> None:
    stack.agent().mark("failed", "exit code 3")
    snapshot = job_control._reader.read("resnet")
    job_control.retry("resnet")
    with pytest.raises(JobError, match="was changed concurrently; check its state and retry"):
        job_control._clear_failure("resnet", snapshot)
    assert stack.agent().retries() == 1


@pytest.mark.parametrize(
    ("state", "act", "message"),
    [
        ("done", JobControl.stop, "is done and cannot be stopped"),
        ("failed", JobControl.stop, "is failed and cannot be stopped"),
        ("done", JobControl.resume, "is done, not stopped; use a new revision to run it again"),
        ("failed", JobControl.resume, "is failed, not stopped; use `gpu-spot jobs retry` to run it again"),
        ("done", JobControl.retry, "is done; deploy a new revision to run it again"),
    ],
)
def test_a_finished_job_is_not_changed(
    stack: Stack, job_control: JobControl, state: Any, act: Callable[[JobControl, str], str], message: str
) -> None:
    agent = stack.agent()
    agent.mark(state)
    agent.publish_finished()
    before = row(stack)
    with pytest.raises(JobError, match=f"^job 'resnet' {message}$"):
        act(job_control, "resnet")
    assert (row(stack), stack.finished("resnet")) == (before, RUN)


def test_a_paused_controller_is_mentioned(stack: Stack, job_control: JobControl) -> None:
    stack.parameter("resnet", "control", '{"mode": "paused"}')
    assert job_control.stop("resnet").endswith(
        "(the controller is in mode paused: no effect until it is automatic again)"
    )


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


def test_a_group_that_is_done_says_how_many_are(shared: Stack) -> None:
    for name in NAMES[2:]:
        agent(shared, ExperimentJobs, name, RUN).mark("done")
    agent(shared, GroupJobs, "resnet", GROUP_RUN).mark("done")
    [group, *_] = shared.reader.reports()
    assert (group.status.phase, group.status.reason) == (
        "done",
        "3 of 4 experiments done, 0 running, 1 failed",
    )


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
    assert len(report.timeline.attempts) == 1
    with pytest.raises(JobError, match="does not exist; jobs of the stack: resnet"):
        shared.reader.report("resnet-9-abcdef")


def test_an_experiment_is_found_if_its_group_is_named_like_another_job(stack: Stack) -> None:
    stack.group("vit")
    stack.group("vit-large", run=GROUP_RUN, break_before_make=False)
    agent(stack, GroupJobs, "vit-large", GROUP_RUN).record_names(["vit-large-0-abcdef"])
    assert stack.reader.read("vit-large-0-abcdef").group == "vit-large"
    assert stack.reader.read("vit-large").group == stack.reader.read("vit").group == ""


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
