"""``training[].study``: what the stack file may say, and what the group's instances get."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from contracts import codec
from contracts.agent import study as studies
from contracts.agent.study import Pruning, Study, StudyParameter
from infra.program.entries.training import agent_config, kind
from infra.settings import SettingsError
from tests.infra import training
from tests.infra.declared import run, variant
from tests.infra.test_matrix import FILES, NAME, settings

CAPACITY = {**training.job()["capacity"], "target": 4, "max": 8}
SPACE: list[dict[str, Any]] = [
    {"name": "LR", "min": 1e-5, "max": 0.1, "log": True},
    {"name": "LAYERS", "min": 2, "max": 8, "step": 2},
    {"name": "OPTIMIZER", "values": ["sgd", "adam"]},
]
A: list[dict[str, Any]] = [{"name": "A", "values": [1]}]
SHARED: dict[str, Any] = {
    "volumeGiB": 0,
    "checkpoints": "checkpoints",
    "dataset": None,
    "capacity": CAPACITY,
}


def study(given: dict[str, Any], **changes: Any) -> Study:
    [job] = settings(**{**SHARED, "study": given, **changes}).jobs
    assert job.study is not None
    assert job.shares_group
    return job.study.settings(job.capacity.target)


def test_a_study_is_read_in_full() -> None:
    given = {
        "trials": 200,
        "concurrency": 8,
        "sampler": "tpe",
        "metric": {"name": "accuracy", "goal": "maximize"},
        "prune": {"rule": "median", "minSteps": 2, "factor": 4, "minTrials": 3},
        "seed": 7,
        "parameters": SPACE,
    }
    parameters = {
        "LR": StudyParameter(min=1e-5, max=0.1, log=True),
        "LAYERS": StudyParameter(min=2, max=8, step=2),
        "OPTIMIZER": StudyParameter(("sgd", "adam")),
    }
    assert study(given) == Study(
        200, 8, parameters, (), "tpe", "accuracy", "maximize", Pruning("median", 2, 4, 3), 7
    )


def test_twenty_trials_on_four_machines_are_one_line() -> None:
    twenty = study({"parameters": [{"name": "SEED", "values": list(range(20))}]})
    assert (twenty.trials, twenty.concurrency, twenty.sampler) == (20, 4, "grid")


def test_combinations_are_trials() -> None:
    listed = study({"combinations": [{"LR": 0.1, "BATCH": 32}, {"LR": 0.2, "BATCH": 64}]})
    assert listed.combinations == ({"LR": "0.1", "BATCH": "32"}, {"LR": "0.2", "BATCH": "64"})
    assert listed.trials == 2


def nine(*parameters: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"trials": 9, "parameters": [*(parameters or A)], **more}


def among(*values: Any, name: str = "A") -> dict[str, Any]:
    return {"name": name, "values": [*values]}


def between(low: float, high: float, **more: Any) -> dict[str, Any]:
    return {"name": "A", "min": low, "max": high, **more}


@pytest.mark.parametrize(
    ("given", "changes", "says"),
    [
        ({"parameters": SPACE}, {}, "without trials and with a range without step, allowed: with trials"),
        ({}, {}, "allowed: either parameters or combinations"),
        ({"parameters": A, "combinations": [{"A": 1}]}, {}, "either parameters or combinations"),
        ({"combinations": [{"A": 1}, {"B": 1}]}, {}, "allowed: the same variables in each"),
        ({"combinations": [{"A": 1}, {"A": 1.0}]}, {}, "with one of them twice"),
        ({"combinations": [{"A": 1}], "sampler": "tpe"}, {}, "sampler 'tpe' with combinations"),
        ({"combinations": [{"A": "x" * 50 + str(n)} for n in range(99)]}, {}, "user data"),
        ({"parameters": [among(1, 2)], "sampler": "random"}, {}, "sampler 'random' without trials"),
        (nine(among(1, 2), sampler="grid"), {}, "trials 9 of 2 combinations"),
        (nine(among(1, 1.0)), {}, "'1' twice, allowed: each value once"),
        (nine(among(1), among(2)), {}, "'A'"),
        (nine({"name": "A", "mim": 1}), {}, "training[0].study.parameters[0].mim: unknown key"),
        (nine(between(2, 2)), {}, "allowed: values, or a min below a max"),
        (nine(between(0, 2, log=True)), {}, "allowed: min above 0"),
        (nine(between(0, 2, step=3)), {}, "makes 1 values, allowed: 2"),
        (nine(between(0, 2, values=[1])), {}, "values and a range, allowed: one of them"),
        (nine(among("y" * 4096)), {}, "user data"),
        (nine(concurrency=3), {}, "capacity.target 4, allowed: at least that"),
        (nine(trialsPerGPU=2), {}, "trialsPerGPU: 2, allowed: 1 (a trial has its instance to itself"),
        (nine(among(1, name="GPU_SPOT_JOB")), {}, "GPU_SPOT_JOB is reserved"),
        (nine(), {"environment": {"A": "1"}}, "A is in environment as well"),
        (nine(), {"matrix": {"B": [1]}}, "with matrix, allowed: one of them"),
        (nine(), {"volumeGiB": 9}, "study, with volumeGiB 9, allowed: 0"),
        (nine(), {"budget": 9}, "study, with budget, allowed: without"),
        (nine(), {"name": "a" * 16}, "a name of at most 15 characters"),
    ],
)
def test_what_does_not_work_is_refused_in_words(
    given: dict[str, Any], changes: dict[str, Any], says: str
) -> None:
    with pytest.raises(SettingsError) as caught:
        study(given, **changes)
    assert says in str(caught.value)
    assert str(caught.value).startswith("gpu-spot:training")


@pytest.mark.parametrize(
    ("keys", "least", "most"),
    [
        (("trials",), 1, 1000),
        (("concurrency",), 4, 64),
        (("seed",), 0, 2**31 - 1),
        (("prune", "minSteps"), 1, 10**9),
        (("prune", "factor"), 2, 100),
        (("prune", "minTrials"), 1, 1000),
    ],
)
def test_bounds(keys: tuple[str, ...], least: int, most: int) -> None:
    def given(value: int) -> dict[str, Any]:
        inner: Any = value
        for key in reversed(keys):
            inner = {key: inner}
        return {**nine(), **inner}

    for value in (least, most):
        study(given(value))
    for value in (least - 1, most + 1):
        with pytest.raises(SettingsError, match=rf"study(\.{keys[0]})?.*allowed"):
            study(given(value))


def test_the_agent_gets_it_as_the_stack_declares_it() -> None:
    [job] = settings(**{**SHARED, "study": {"trials": 9, "parameters": SPACE, "prune": {}}}).jobs
    outputs = agent_config.JobOutputs("jobs", "fs-1", "fsap-1")
    work = agent_config.work(job, "dev", "us-west-2", outputs)
    received = codec.parse(Study, json.loads(json.dumps(codec.dump(work["training"].study))))
    assert (received.trials, received.concurrency, received.prune) == (9, 4, Pruning())
    assert studies.run_of("r", received) == studies.run_of("r", job.study.settings(4))  # type: ignore[union-attr]
    assert not work["training"].experiments
    assert "experiments" in kind.needs(settings(**{**SHARED, "study": {"combinations": [{"A": 1}]}}))


@pytest.mark.soak
def test_its_instances_share_one_group(tmp_path: Path) -> None:
    def change(config: dict[str, Any]) -> None:
        config["gpu-spot:storage"] = FILES
        given = {"trials": 9, "parameters": SPACE, "prune": {}}
        config["gpu-spot:training"] = [training.job(**SHARED, study=given)]

    found = run("known", variant(tmp_path, change))
    agent = found.agent(f"{NAME}-primary")["training"]
    declared = codec.parse(Study, agent["study"])
    assert (declared.trials, declared.concurrency, declared.prune) == (9, 4, Pruning())
    config = json.loads(found.the("Parameter", f"{NAME}-config")["insecureValue"])
    assert config["run"] == studies.run_of(agent["revision"], declared)
    assert not config["breakBeforeMake"]
    policy = json.loads(found.the("RolePolicy", f"{NAME}-instance")["policy"])["Statement"]
    assert any(statement["Sid"] == "KeepExperiments" for statement in policy)
