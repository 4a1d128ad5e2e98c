"""``gpu-spot release-budget``: what is stored and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from contracts import names
from contracts.group import control
from contracts.group.hourly_budget import HourlyBudget
from gpu_spot import cli
from gpu_spot.commands.deployed import release_budget
from pulumi_declared.stackfile import StackConfig
from tests.jobs.snapshots import NOW
from tests.jobs.stack import Stack

CONFIG = StackConfig("gpu-spot", "dev", Path(), {"aws:region": "us-west-2"})
BUDGET = HourlyBudget(slot_price=2.0, dollars=10.0)
CONTROL = names.group_parameter("dev", "resnet", names.PARAMETER_CONTROL)


@pytest.fixture
def budgeted(stack: Stack) -> Stack:
    stack.group("resnet", hourly_budget=BUDGET)
    stack.parameter("resnet", "control", '{"mode": "manual", "onDemand": 1}')
    return stack


def release(stack: Stack, *words: str, group: str = "resnet") -> int:
    args = cli.parser("release-budget").parse_args(["release-budget", "--group", group, *words])
    return release_budget.act(args, stack, CONFIG, lambda: NOW)


def stored(stack: Stack) -> dict:
    return json.loads(stack("ssm").get_parameter(Name=CONTROL)["Parameter"]["Value"])


def test_a_release_is_stored_with_its_time_and_reason_and_ends(
    budgeted: Stack, capsys: pytest.CaptureFixture[str]
) -> None:
    assert release(budgeted, "--hours", "2", "--reason", "sale day") == 0
    assert stored(budgeted) == {
        "mode": "manual",
        "onDemand": 1,
        "budgetRelease": {"startsAt": NOW, "endsAt": NOW + 7200, "reason": "sale day"},
    }
    read = control.parse(json.dumps(stored(budgeted))).budget_release
    assert read is not None
    assert read.is_active(NOW + 7199)
    assert not read.is_active(NOW + 7200)
    assert release(budgeted, "--hours", "0") == 0
    assert stored(budgeted) == {"mode": "manual", "onDemand": 1}
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("the hourly budget of resnet is released until ")
    assert said[1] == "the hourly budget of resnet applies again"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "--reason: ''; allowed: a length of 1 to 200"),
        (("--reason", "x", "--hours", "25"), "--hours is 25, allowed: 0 to 24"),
        (("--reason", "x", "--hours", "-1"), "--hours is -1, allowed: 0 to 24"),
        (("--reason", "x", "--hours", "nan"), "--hours is nan, allowed: 0 to 24"),
    ],
)
def test_a_release_without_a_reason_or_an_end_is_refused(
    budgeted: Stack, words: tuple[str, ...], said: str
) -> None:
    with pytest.raises(ValueError, match=r"^--") as caught:
        release(budgeted, *words)
    assert str(caught.value) == said
    assert "budgetRelease" not in stored(budgeted)


def test_an_unknown_group_and_one_without_a_budget_are_refused(budgeted: Stack) -> None:
    budgeted.group("bert")
    with pytest.raises(ValueError, match=r"--group is 'none', allowed for stack 'dev': bert, resnet"):
        release(budgeted, "--reason", "x", group="none")
    with pytest.raises(ValueError, match=r"^group 'bert' has no capacity\.budget in the stack file$"):
        release(budgeted, "--reason", "x", group="bert")
