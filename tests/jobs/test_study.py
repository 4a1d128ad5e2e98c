"""``gpu-spot jobs study``: the trials of a study, best first, with what they cost."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from io import StringIO
from pathlib import Path
from xml.etree import ElementTree

import pytest
from rich.console import Console

from contracts import codec, names
from contracts.agent.study import Pruning, Study, StudyParameter, TrialResult, trial_names
from gpu_spot.commands.deployed import jobs as command
from gpu_spot.jobs import curves
from gpu_spot.jobs.reader import JobError
from gpu_spot.jobs.study import read_study, study_table, to_json
from tests.jobs.snapshots import RUN, job_attempt
from tests.jobs.stack import Stack
from tests.node.clocks import FakeClock
from userdata.agent.aws.experiments import ExperimentJobs, GroupJobs
from userdata.agent.study.table import TrialTable

STUDY = Study(6, 2, {"LR": StudyParameter(min=0.0, max=1.0)}, prune=Pruning(factor=2), metric="error")
NAMES = trial_names("resnet", STUDY)
GROUP_RUN = f"{RUN}/abcdef"
RESULTS = [
    ((0.5, 0.3), 2, 0.3, "done"),
    ((0.4, 0.2), 3, 0.1, "done"),
    ((0.9, 0.8), 2, 0.8, "done"),  # goes on past the rung that prunes it
    ((0.35,), 1, 0.35, "running"),
    ((), 0, None, "failed"),
]


@pytest.fixture
def studied(stack: Stack) -> Stack:
    stack.group("resnet", run=GROUP_RUN, break_before_make=False)
    parameter = names.group_parameter("dev", "resnet", names.PARAMETER_FINISHED)
    clients = (stack("dynamodb"), stack("ssm"))
    group = GroupJobs(*clients, stack.jobs, "resnet", GROUP_RUN, parameter, FakeClock())
    group.record_names(NAMES, json.dumps(codec.dump(STUDY)))
    group.mark("running")
    for number, (rungs, step, value, state) in enumerate(RESULTS):
        name, instance = NAMES[number], f"i-{number}"
        jobs = ExperimentJobs(*clients, stack.jobs, name, RUN, parameter, FakeClock())
        jobs.mark("running")
        stack.set_lease(name, instance, 1)
        result = TrialResult(RUN, {"LR": f"0.{number}"}, tuple(map(repr, rungs)), step)
        result = result if value is None else replace(result, value=repr(value))
        TrialTable(stack("dynamodb"), stack.jobs, name, instance, RUN).write(result)
        stack.record_attempt(name, job_attempt(1, instance, 3600, 0))
        if state != "running":
            jobs.mark(state)  # type: ignore[arg-type]
    return stack


def test_the_best_complete_trial_comes_first(studied: Stack) -> None:
    report = read_study(studied.reader, "resnet")
    assert [trial.number for trial in report.trials] == [1, 0, 3, 2, 4, 5]
    assert [trial.outcome.state for trial in report.trials] == [
        *("complete", "complete", "running", "pruned", "failed", "waiting")
    ]
    assert report.trials[0].parameters == {"LR": "0.1"}
    assert all(trial.charge.seconds > 0 for trial in report.trials[:5])
    console = Console(file=StringIO(), width=160)
    console.print(study_table(report))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "2 complete, 1 failed, 1 pruned, 1 running, 1 waiting" in text
    assert "error" in text
    [first, *_] = to_json(report)["trials"]
    assert (first["trial"], first["value"], first["rungs"]) == (1, 0.1, [0.4, 0.2])
    assert first["estimated_cost_usd"] >= 0  # moto's Spot prices are next to nothing


def test_curves_have_each_value_that_counts_and_mark_the_best_trial(studied: Stack, tmp_path: Path) -> None:
    path = tmp_path / "study.svg"
    args = argparse.Namespace(stack="dev", action="study", job="resnet", json=True, watch=False, curves=path)
    assert command.act(args, studied, "us-west-2") == 0
    picture = ElementTree.parse(path)
    labels = sorted(title.text or "" for title in picture.iter("{http://www.w3.org/2000/svg}title"))
    assert labels == [
        "trial 0, complete, step 1: 0.5",
        "trial 0, complete, step 2: 0.3",
        "trial 1, complete, step 1: 0.4",
        "trial 1, complete, step 2: 0.2",
        "trial 1, complete, step 3: 0.1",
        "trial 2, pruned, step 1: 0.9",
        "trial 3, running, step 1: 0.35",
    ]
    assert "best: trial 1" in path.read_text()


def test_curves_are_an_svg_of_some_values(studied: Stack, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"study.png, allowed: a file that ends in .svg"):
        curves.check(tmp_path / "study.png")
    empty = replace(read_study(studied.reader, "resnet"), trials=())
    with pytest.raises(JobError, match="has no values yet"):
        curves.svg(empty)


def test_the_command_prints_it_with_few_calls(studied: Stack, capsys: pytest.CaptureFixture[str]) -> None:
    studied.calls.clear()
    args = argparse.Namespace(stack="dev", action="study", job="resnet", json=True, watch=False)
    assert command.act(args, studied, "us-west-2") == 0
    assert [trial["trial"] for trial in json.loads(capsys.readouterr().out)["trials"]][:2] == [1, 0]
    assert studied.calls["BatchGetItem"] <= 4


def test_what_is_no_study_is_one_line(studied: Stack) -> None:
    studied.group("bert")
    with pytest.raises(JobError, match="job 'bert' has no trials, allowed: a job with training"):
        read_study(studied.reader, "bert")
    with pytest.raises(JobError, match="is a trial; use its study's name, 'resnet'"):
        read_study(studied.reader, NAMES[0])
