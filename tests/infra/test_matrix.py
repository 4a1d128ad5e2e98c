"""Several experiments of one entry: a job each, named by its values and by nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from contracts.agent.experiments import by_name, run_of
from infra.schema import Settings
from infra.settings import SettingsError, load_settings
from tests.iam import Request, allows
from tests.infra import training
from tests.infra.declared import Run, edited_stack
from tests.infra.test_fixed import differences

MATRIX: dict[str, list[Any]] = {"LR": [0.1, 0.01], "SEED": [1, 2, 3]}
NAME = training.job()["name"]
SHARED: dict[str, Any] = {
    "matrix": {"SEED": list(range(30))},
    "volumeGiB": 0,
    "checkpoints": "checkpoints",
    "dataset": None,
}
"""More than 20 experiments, which share a group."""
FILES = {"fileSystem": {"accessPoints": [{"name": "checkpoints", "path": "/checkpoints"}]}}


def settings(others: tuple[dict[str, Any], ...] = (), **changes: Any) -> Settings:
    return load_settings(
        {
            "aws:region": "us-west-2",
            "gpu-spot:storage": FILES,
            "gpu-spot:network": {"cidr": "10.20.0.0/16", "zones": ["us-west-2a", "us-west-2b"]},
            "gpu-spot:services": [],
            "gpu-spot:training": [training.job(**changes), *others],
        }
    )


def names(matrix: dict[str, list[Any]], **changes: Any) -> dict[str, dict[str, str]]:
    return {job.name: job.environment for job in settings(matrix=matrix, **changes).jobs}


def test_each_combination_is_a_job() -> None:
    found = names(MATRIX, environment={"EPOCHS": "9"})
    assert len(found) == 6
    assert list(found.values())[1] == {"EPOCHS": "9", "LR": "0.1", "SEED": "2"}
    assert all(name.startswith(f"{NAME}-") and len(name) <= 24 for name in found)
    assert next(iter(found)).startswith(f"{NAME}-0p1-1-")


def test_a_job_without_a_matrix_keeps_its_name() -> None:
    one = settings()
    assert one.jobs == one.training


@pytest.mark.parametrize(
    "matrix",
    [
        {"LR": [0.01, 0.1], "SEED": [3, 2, 1]},
        {"SEED": [1, 2, 3], "LR": [0.1, 0.01]},
        {"LR": ["0.1", "0.01"], "SEED": [1.0, 2, "3"]},
    ],
)
def test_order_and_spelling_change_no_names(matrix: dict[str, list[Any]]) -> None:
    assert names(matrix) == names(MATRIX)


def test_a_removed_value_changes_no_other_name() -> None:
    fewer, more = names({**MATRIX, "SEED": [3, 1]}), names({**MATRIX, "SEED": [0, 1, 2, 3]})
    assert fewer.items() < names(MATRIX).items() < more.items()


def test_values_that_read_alike_have_names_of_their_own() -> None:
    alike = {"OPTIMIZER": ["adam-w", "adam_w", "Adam.W", "adam w", "", "é"]}
    assert len(names(alike)) == 6
    assert len(names({"A": ["1-2", "1"], "B": ["3", "2-3"]})) == 4
    assert len(names(MATRIX, name="a" * 17)) == 6


def test_jobs_share_the_common_resources_only() -> None:
    prepare = {"version": "1", "command": ["make", "data"], "instanceType": "m7i.large"}
    of = settings(
        matrix=MATRIX, prepare=prepare, artifacts="s3://results/x/", environment={"TOKENIZER": "bpe"}
    )
    [builder] = of.builders
    assert (builder.dataset, builder.group) == ("resnet@1", "resnet-data")
    # What the dataset is made with is not an experiment's.
    assert builder.entry.environment == {"TOKENIZER": "bpe"}
    assert {job.artifacts for job in of.jobs} == {f"s3://results/x/{job.name}/" for job in of.jobs}


def declared(matrix: dict[str, list[Any]], **changes: Any) -> Run:
    job = training.job(**{"checkpoints": "checkpoints", "dataset": None, "matrix": matrix, **changes})
    return edited_stack({"storage": FILES, "training": [job]})


def test_every_experiment_has_its_own_of_everything() -> None:
    both = declared({"LR": [0.1, 0.01]})
    jobs = list(names({"LR": [0.1, 0.01]}))
    assert set(jobs) < both.exports["groups"].keys()
    for job, rate in zip(jobs, ("0.1", "0.01"), strict=True):
        agent = both.agent(f"{job}-primary")
        assert (agent["group"], agent["training"]["job"]) == (job, job)
        assert agent["training"]["environment"] == {"LR": rate}
        # One access point, above a folder for each.
        assert [mount["path"] for mount in agent["efs"]] == ["/dltraining/checkpoints"]
        config = both.config(job)
        assert config["primary"] == f"gpu-spot-dev-{job}-primary"
    # One less, in another order: what stays is what it was.
    one = declared({"LR": [0.01]})
    shared = set(one.identities()) & set(both.identities())
    assert {name for _, name in shared if jobs[1] in name}
    assert not {name for _, name in one.identities() if jobs[0] in name}
    changed = differences(both, one, shared_only=True)
    assert not {resource for resource in changed if jobs[1] in resource}


def test_more_than_twenty_are_one_job() -> None:
    [job] = settings(**SHARED).jobs
    assert (job.name, job.shares_group, job.environment) == (NAME, True, {})
    with pytest.raises(SettingsError, match="'resnet-x' begins like the experiments of 'resnet'"):
        settings(others=(training.job(name="resnet-x"),), **SHARED)


def test_they_share_one_group_of_several_instances() -> None:
    capacity = {**training.job()["capacity"], "target": 4}
    capacity["max"] = 8
    found = declared(**SHARED, capacity=capacity)
    agent = found.agent(f"{NAME}-primary")
    assert agent["training"]["experiments"] == {"SEED": [str(number) for number in range(30)]}
    config = found.config(NAME)
    # Instances do not wait for each other, and another value is another run of the group.
    assert not config["breakBeforeMake"]
    assert config["run"] == run_of(agent["training"]["revision"], agent["training"]["experiments"])
    assert run_of("r", {"A": ["1", "2"]}) == run_of("r", {"A": ["2", "1"]}) != run_of("r", {"A": ["1"]})
    assert {name for name in found.exports["groups"] if name.startswith(NAME)} == {NAME}
    policy = found.policy(f"{NAME}-instance")["Statement"]
    table = next(one for one in policy if one["Sid"] == "KeepExperiments")["Resource"][0]

    def may(action: str, *keys: str) -> bool:
        asked = Request(f"dynamodb:{action}", table, {"dynamodb:LeadingKeys": keys} if keys else {})
        return allows([{"Statement": policy}], asked)

    one, other = list(by_name(NAME, agent["training"]["experiments"]))[:2]
    assert may("BatchGetItem", one, other)
    assert may("UpdateItem", one)
    assert may("UpdateItem", NAME)
    assert may("PutItem", f"{one}#07")
    # Neither another job's item, nor a new item in place of a lease.
    assert not may("BatchGetItem", one, "bert")
    assert not may("UpdateItem", f"{NAME}50-a")
    assert not may("PutItem", one)
    assert not may("BatchGetItem")
