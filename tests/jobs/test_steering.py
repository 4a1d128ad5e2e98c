"""Stop, resume and retry: what each changes, in which states, and that twice is once."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from contracts import names
from gpu_spot.jobs.reader import JobError
from gpu_spot.jobs.steering import Steering
from lambdas.aws.memory import MemoryStore
from lambdas.core.capacity.memory import Memory
from lambdas.core.money.bill import Bill
from tests.jobs.seen import NOW, RUN
from tests.jobs.stack import SUFFIX, Stack


@pytest.fixture
def steering(stack: Stack) -> Steering:
    stack.group("resnet")
    return Steering(stack, "dev", stack.reader)


def row(stack: Stack) -> dict[str, Any]:
    key = {"job": {"S": "resnet"}}
    return dict(stack("dynamodb").get_item(TableName=stack.jobs, Key=key)["Item"])


def test_a_stopped_run_counts_as_ended_until_it_is_resumed(stack: Stack, steering: Steering) -> None:
    instance = stack.trains()
    assert (
        steering.stop("resnet") == f"stopped resnet: {instance} is told to save, and goes; its volume stays"
    )
    assert stack.finished("resnet") == RUN
    assert stack.reader.shown("resnet").standing.phase == "stopped"
    assert steering.stop("resnet") == "resnet is stopped already"
    assert not stack.agent().finished()  # the job has no verdict: nobody says that it is done
    assert steering.resume("resnet") == "resumed resnet: an instance is asked for"
    assert stack.finished("resnet") == "none"
    assert steering.resume("resnet") == "resnet is not stopped, it is running"


def test_a_failed_run_begins_again_with_nothing_counted(stack: Stack, steering: Steering) -> None:
    agent = stack.agent()
    agent.count_host_fault(5.0)
    agent.mark("failed", "exit code 3")
    agent.take_down()
    assert agent.finished()
    assert stack.reader.shown("resnet").standing.why == "exit code 3"
    assert steering.retry("resnet") == "resnet begins again, for the 1st time"
    assert (agent.finished(), agent.retries(), stack.finished("resnet")) == (False, 1, "none")
    assert row(stack).keys().isdisjoint({"state", "reason", "hostFaults"})
    assert steering.retry("resnet") == "resnet has not failed, it is pending"
    agent.mark("failed", "exit code 4")
    assert steering.retry("resnet") == "resnet begins again, for the 2nd time"
    assert stack.agent(revision="b" * 40).retries() == 0


def test_a_retry_that_breaks_off_leaves_a_run_that_can_be_resumed(
    stack: Stack, steering: Steering, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = stack.agent()
    agent.mark("failed", "exit code 3")
    agent.take_down()

    def break_off(**_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as broken:
        broken.setattr(stack("ssm"), "put_parameter", break_off)
        with pytest.raises(KeyboardInterrupt):
            steering.retry("resnet")
    with pytest.raises(JobError, match="it is stopped, not failed; `gpu-spot jobs resume` lets it go on"):
        steering.retry("resnet")
    steering.resume("resnet")
    assert (agent.finished(), stack.finished("resnet")) == (False, "none")


def spent(stack: Stack, dollars: float) -> None:
    stack.group("resnet", budget=10.0, own_prices={"g6.xlarge": 1.0})
    store = MemoryStore(stack("dynamodb"), f"gpu-spot-dev-memory-{SUFFIX}")
    store.save("resnet", Memory(bill=Bill(RUN, dollars, NOW, {})), None, 0)


def test_a_budget_is_raised_beside_what_people_have_set(stack: Stack, steering: Steering) -> None:
    spent(stack, 10.5)
    stack.parameter("resnet", "control", '{"mode": "manual", "onDemand": 1}')
    assert stack.reader.shown("resnet").standing.phase == "stopped"
    with pytest.raises(JobError, match=r"its budget of \$10.00 is spent, allowed: --budget above 10.50"):
        steering.resume("resnet")
    with pytest.raises(JobError, match=r"--budget 10.5, allowed: above the 10.50 spent"):
        steering.resume("resnet", 10.5)
    assert steering.resume("resnet", 25.0).startswith("resumed resnet: an instance is asked for")
    name = names.group_parameter("dev", "resnet", names.PARAMETER_CONTROL)
    told = stack("ssm").get_parameter(Name=name)["Parameter"]["Value"]
    assert json.loads(told) == {"mode": "manual", "onDemand": 1, "budget": 25.0}
    seen = stack.reader.one("resnet")
    assert (seen.budget, seen.spent, seen.is_held) == (25.0, 10.5, False)


def test_a_job_that_goes_on_may_get_a_higher_budget_and_one_without_gets_none(
    stack: Stack, steering: Steering
) -> None:
    with pytest.raises(JobError, match=r"it has no budget; training\[\]\.budget gives it one"):
        steering.resume("resnet", 25.0)
    spent(stack, 9.0)
    stack.trains()
    said = steering.resume("resnet", 25.0)
    assert said == "resnet is not stopped, it is running, with a budget of $25.00 from now on"


def test_two_who_retry_at_once_count_once(stack: Stack, steering: Steering) -> None:
    stack.agent().mark("failed", "exit code 3")
    seen = steering._reader.one("resnet")
    steering.retry("resnet")
    with pytest.raises(JobError, match="somebody else has just changed it; look again"):
        steering._take_back("resnet", seen)
    assert stack.agent().retries() == 1


@pytest.mark.parametrize(
    ("state", "act", "message"),
    [
        ("done", Steering.stop, "it is done, there is nothing to stop"),
        ("failed", Steering.stop, "it is failed, there is nothing to stop"),
        ("done", Steering.resume, "it is done, not stopped; a new revision lets it begin again"),
        ("failed", Steering.resume, "it is failed, not stopped; `gpu-spot jobs retry` lets it begin again"),
        ("done", Steering.retry, "it is done; a new revision runs again"),
    ],
)
def test_what_has_ended_by_itself_is_left_alone(
    stack: Stack, steering: Steering, state: Any, act: Callable[[Steering, str], str], message: str
) -> None:
    agent = stack.agent()
    agent.mark(state)
    agent.take_down()
    before = row(stack)
    with pytest.raises(JobError, match=f"^job 'resnet': {message}$"):
        act(steering, "resnet")
    assert (row(stack), stack.finished("resnet")) == (before, RUN)


def test_while_people_hold_the_controller_it_says_that_nothing_follows(
    stack: Stack, steering: Steering
) -> None:
    stack.parameter("resnet", "control", '{"mode": "paused"}')
    assert steering.stop("resnet").endswith(
        "(the controller is paused: nothing follows until people set it back)"
    )
