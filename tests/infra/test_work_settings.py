"""What the schema takes of any work, and its warnings of data on a slow file system."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from infra.schema import Settings
from infra.settings import load_settings
from tests.infra.test_refusals import IMAGE, JOB, ONE, SERVICE, STACKS, settings, training
from tests.infra.training import job as research_job

WHEN = "2027-03-01T18:00:00+01:00"


def declared(**job: Any) -> Settings:
    return settings("prod", training(**{"deadline": WHEN, **job}))


@pytest.mark.parametrize("text", [WHEN, "2027-03-01T17:00:00Z", "2027-03-01 12:00-05:00"])
def test_a_deadline_is_one_moment_however_its_zone_is_written(text: str) -> None:
    [job] = declared(deadline=text).training
    assert job.deadline_at == datetime(2027, 3, 1, 17, tzinfo=UTC).timestamp()


def test_without_one_there_is_none() -> None:
    [job] = settings("prod", training()).training
    assert job.deadline_at == 0


def test_a_date_that_has_passed_is_a_warning_for_the_job_may_be_done() -> None:
    stack = declared()
    assert list(stack.past_deadlines(datetime(2027, 3, 1, 16, 59, tzinfo=UTC))) == []
    [warning] = stack.past_deadlines(datetime(2027, 3, 1, 17, 0, tzinfo=UTC))
    assert warning.startswith(f"gpu-spot:training[0].deadline: {WHEN} has passed")


SNAPSHOT = "snap-0123456789abcdef0"
AMI = "ami-0123456789abcdef0"
TRAINIUM = ONE | {"instanceTypes": ["trn1.2xlarge"], "ami": AMI}


def datasets(*paths: str, **values: Any) -> list[dict[str, Any]]:
    return [{"snapshot": SNAPSHOT, "path": path, **values} for path in paths]


def service(**values: Any) -> dict[str, Any]:
    return {f"{SERVICE}/{key}": value for key, value in values.items()}


def test_all_of_it_may_be_said_at_once() -> None:
    both = settings(
        "dev",
        service(
            image=IMAGE,
            command=["sh", "-c", "first\nsecond", "ünïcode", ""],
            environment={"MODEL": "llama = 3", "EMPTY": ""},
            datasets=datasets("/data/a", "/data/ab", "/mnt/c/d", "/dltraining/datasets/e"),
            reportsReadiness=True,
        )
        | training(
            datasets=datasets("/dltraining/datasets/a"),
            environment={"A": "b"},
            maxRestarts=0,
            throughputMib=750,
            initializationRateMib=100,
        ),
    )
    assert both.services[0].environment == {"MODEL": "llama = 3", "EMPTY": ""}
    assert both.training[0].max_restarts == 0
    # The copy of its own dataset and shared ones elsewhere.
    assert settings("dev", training(dataset="s3://datasets/a/", datasets=datasets("/data/a")))


def test_a_command_without_an_image_may_say_that_it_is_ready() -> None:
    assert settings("dev", service(command=["serve"], reportsReadiness=True)).services[0].reports_readiness


def test_a_job_on_trainium_is_no_nvidia_group() -> None:
    job = settings("dev", {"gpu-spot:training": [JOB | {"capacity": TRAINIUM}]}).training[0]
    assert not job.capacity.is_nvidia


def test_each_experiment_has_a_budget_of_its_own() -> None:
    several = settings("dev", training(budget=5, matrix={"SEED": [1, 2, 3]}))
    assert [job.budget for job in several.jobs] == [5, 5, 5]


PREPARE = {"version": "1", "command": ["true"], "instanceType": "m7i.large"}
MOUNT = "/dltraining/checkpoints/resnet"


def warnings(**changes: Any) -> list[str]:
    job = research_job(**{"checkpoints": "checkpoints", "dataset": None, **changes})
    settings = load_settings({**STACKS["prod"], "gpu-spot:training": [job]})
    return [line for line in settings.warnings() if "round trip" in line]


@pytest.mark.parametrize(
    ("changes", "option"),
    [
        ({}, "checkpoints: the job has no dataset, prepare or datasets"),
        ({"command": ["python3", "t.py", f"--data-dir={MOUNT}/imagenet"]}, "command: '--data-dir="),
        ({"command": ["python3", "t.py", "--train", f"{MOUNT}/imagenet"]}, "command: '/dltraining/"),
        (
            {"dataset": "s3://datasets/a/", "environment": {"DATA_ROOT": f"{MOUNT}/a"}},
            "environment.DATA_ROOT: '",
        ),
        (
            {"dataset": "s3://datasets/a/", "command": ["sh", "-c", "x", "--input=$GPU_SPOT_CHECKPOINTS/a"]},
            "command: '--input=",
        ),
    ],
)
def test_data_on_the_file_system_is_a_warning(changes: dict[str, Any], option: str) -> None:
    [line] = warnings(**changes)
    assert line.startswith(f"gpu-spot:training[0].{option}")
    assert "about 1 ms" in line
    assert "dataset, prepare or datasets" in line


@pytest.mark.parametrize(
    "changes",
    [
        {"dataset": "s3://datasets/a/"},
        {"prepare": PREPARE},
        {"datasets": [{"snapshot": "snap-0123456789abcdef0", "path": "/data/a"}]},
        {"checkpoints": "volume"},
        {"dataset": "s3://datasets/a/", "command": ["python3", "t.py", f"--resume={MOUNT}/step-1"]},
        {"dataset": "s3://datasets/a/", "command": ["python3", "t.py", "--metadata", "/tmp/x"]},
    ],
)
def test_data_on_volumes_is_no_warning(changes: dict[str, Any]) -> None:
    assert warnings(**changes) == []
