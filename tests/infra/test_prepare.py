"""A dataset that is prepared: a group of one CPU instance, for which the job's GPUs wait."""

from __future__ import annotations

from typing import Any

import pytest

from infra.settings import load_settings
from tests.infra import training
from tests.infra.declared import Run
from tests.infra.test_settings import DEV

PREPARE: dict[str, Any] = {
    "name": "imagenet",
    "version": "2",
    "command": ["python3", "prepare.py"],
    "instanceType": "m7i.2xlarge",
}
DATASET = "imagenet@2"


def with_jobs(*jobs: dict[str, Any]) -> dict[str, Any]:
    return {**DEV, "gpu-spot:training": list(jobs)}


@pytest.fixture(scope="module")
def known() -> Run:
    return training.stack(prepare=PREPARE, throughputMib=500, environment={"SEED": "1"})


def test_a_group_of_one_cpu_instance_with_the_jobs_image_prepares(known: Run) -> None:
    group = known.the("Group", "imagenet-data-primary")
    launch = group["mixedInstancesPolicy"]["launchTemplate"]
    assert [one["instanceType"] for one in launch["overrides"]] == ["m7i.2xlarge"]
    images = {
        known.the("LaunchTemplate", f"{name}-primary")["imageId"] for name in ("imagenet-data", "resnet")
    }
    assert len(images) == 1
    assert "warmPool" not in known.the("Group", "imagenet-data-fallback")
    assert known.the("Parameter", "imagenet-data-target")["insecureValue"] == "1"


def test_the_job_waits_for_the_group_that_prepares(known: Run) -> None:
    waits, makes = known.config("resnet"), known.config("imagenet-data")
    assert (waits["dataset"], waits["preparedBy"]) == (makes["dataset"], makes["preparedBy"])
    assert (makes["dataset"], makes["preparedBy"]) == (DATASET, "imagenet-data")
    # Another version is another run, though the code is the same.
    assert makes["run"] == f"{training.REVISION}/{DATASET}"
    assert waits["run"] == training.REVISION
    parameters = (one for one in known.declared if one["type"].endswith(":Parameter"))
    [said] = [one for one in parameters if one["name"].endswith("-prepared")]
    assert said["name"] == "imagenet-data-prepared"
    assert (said["inputs"]["insecureValue"], said["ignore_changes"]) == ("none", ["insecureValue"])


def test_the_agents_configurations_have_the_dataset_and_its_preparation(known: Run) -> None:
    makes, uses = known.agent("imagenet-data-primary"), known.agent("resnet-primary")
    assert makes["prepared"] == uses["prepared"]
    assert makes["prepared"] == {
        "dataset": DATASET,
        "group": "imagenet-data",
        "parameter": "/gpu-spot/dev/groups/imagenet-data/prepared",
    }
    assert makes["training"]["job"] == "imagenet-data"
    assert makes["training"]["command"] == ["python3", "prepare.py"]
    assert makes["training"]["environment"] == {"SEED": "1"}
    assert makes["nvidia"] is False
    assert makes["volume"] == {
        "sizeGib": 500,
        "throughputMib": 500,
        "dataset": "s3://datasets/imagenet/",
        "snapshotEveryMinutes": 0,  # one is taken at the end
    }
    # All of it is in the snapshot: the GPU reads nothing of S3.
    assert uses["volume"] == {"sizeGib": 500, "throughputMib": 500}


def test_permissions_of_both_groups(known: Run) -> None:
    makes, uses = known.statements("imagenet-data-instance"), known.statements("resnet-instance")
    assert {"ReadDataset", "SayPrepared"} <= makes.keys()
    assert not {"FindPrepared", "CopyPrepared"} & makes.keys()
    assert {"FindPrepared", "CopyPrepared"} <= uses.keys()
    assert not {"ReadDataset", "SayPrepared"} & uses.keys()
    assert makes["SayPrepared"]["Resource"][0].endswith("/groups/imagenet-data/prepared")
    assert uses["FindPrepared"]["Condition"]["ForAllValues:StringEquals"] == {
        "dynamodb:LeadingKeys": ["imagenet-data"]
    }
    assert uses["CopyPrepared"]["Condition"]["StringEquals"] == {
        "aws:ResourceTag/gpu-spot:stack": "dev",
        "aws:ResourceTag/gpu-spot:dataset": DATASET,
    }


def test_a_missing_dataset_has_an_alarm(known: Run) -> None:
    alarm = known.the("MetricAlarm", "imagenet-data-shortage")
    assert alarm["evaluationPeriods"] == 60  # a job's patience: its volume may be on its way


def test_without_it_nothing_waits() -> None:
    plain = training.stack()
    assert (plain.config("resnet")["dataset"], plain.config("resnet")["preparedBy"]) == ("", "")
    assert "prepared" not in plain.agent("resnet-primary")
    assert "ReadDataset" in plain.statements("resnet-instance")


def test_two_jobs_of_one_dataset_have_it_prepared_once() -> None:
    first, second = (
        training.job(prepare=PREPARE),
        training.job(prepare=PREPARE, name="vit", revision="f" * 40),
    )
    settings = load_settings(with_jobs(first, second))
    [builder] = settings.builders
    assert (builder.dataset, builder.group) == (DATASET, "imagenet-data")
    assert builder.entry.revision == training.REVISION
    assert list(settings.capacities)[-3:] == ["resnet", "vit", "imagenet-data"]


def test_left_out_the_dataset_is_called_as_the_job_and_as_large() -> None:
    without = {key: value for key, value in PREPARE.items() if key != "name"}
    [builder] = load_settings(with_jobs(training.job(prepare=without))).builders
    assert (builder.dataset, builder.entry.volume_gib) == ("resnet@2", 500)
    [small] = load_settings(with_jobs(training.job(prepare={**without, "sizeGiB": 200}))).builders
    assert small.entry.volume_gib == 200
