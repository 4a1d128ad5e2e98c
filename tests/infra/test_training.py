"""A training job: one instance that its volume follows, until the job itself says that it is done."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lambdas.core import names
from tests.infra import training
from tests.infra.declared import Run
from userdata.agent.names import JOB_KEY, TAG_JOB


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return training.stack(tmp_path_factory.mktemp("training"))


def target(of: Run) -> dict[str, Any]:
    [declared] = [one for one in of.declared if one["name"] == "gpu-spot-dev-resnet-target"]
    return declared


def test_it_is_a_group_that_the_controller_keeps(known: Run) -> None:
    config = json.loads(known.the("Parameter", "resnet-config")["insecureValue"])
    assert config["slots"] == {"g5.xlarge": 1, "g6.xlarge": 1}
    assert config["fallback"] == "gpu-spot-dev-resnet-fallback"
    assert target(known)["inputs"]["insecureValue"] == "1"
    assert known.exports["groups"]["resnet"]["primary"] == "gpu-spot-dev-resnet-primary"


def test_the_agent_is_told_job_volume_and_whose_target_it_ends(known: Run) -> None:
    told = known.agent("resnet-primary")
    assert told["training"] == {
        "job": "resnet",
        "jobTable": "gpu-spot-dev-jobs",
        "repository": "https://example.com/vision/resnet.git",
        "revision": training.REVISION,
        "command": ["python", "train.py", "--epochs=90"],
        "user": "ubuntu",
        "targetParameter": known.the("Parameter", "resnet-target")["name"],
    }
    assert told["volume"] == {"sizeGib": 500, "dataset": "s3://datasets/imagenet/"}
    assert "service" not in told


def test_a_finished_job_stays_finished_and_another_revision_runs(known: Run, tmp_path: Path) -> None:
    declared = target(known)
    assert (declared["ignore_changes"], declared["replace_on_changes"]) == (
        ["insecureValue"],
        ["description"],
    )
    again = target(training.stack(tmp_path / "same", command=["python", "other.py"]))
    assert again["inputs"]["description"] == declared["inputs"]["description"]
    other = target(training.stack(tmp_path / "other", revision="f" * 40))
    assert other["inputs"]["description"] != declared["inputs"]["description"]
    # A service's target is the stack file's.
    [services] = [one for one in known.declared if one["name"] == "gpu-spot-dev-inference-target"]
    assert (services["ignore_changes"], services["replace_on_changes"]) == ([], [])


def test_the_job_table_is_found_by_job_and_forgets_nothing(known: Run) -> None:
    table = known.the("Table", "jobs")
    assert (table["hashKey"], table.get("rangeKey"), table.get("ttl")) == (JOB_KEY, None, None)
    assert table["pointInTimeRecovery"] == {"enabled": True}


def test_instances_carry_the_job_and_their_root_volumes_do_not(known: Run) -> None:
    specified = {
        spec["resourceType"]: spec["tags"]
        for spec in known.the("LaunchTemplate", "resnet-primary")["tagSpecifications"]
    }
    assert specified["instance"][TAG_JOB] == "resnet"
    # The role may delete volumes of the job: a root volume is none.
    assert TAG_JOB not in specified["volume"]
    assert specified["volume"][names.TAG_GROUP] == "resnet"


def test_checkpoints_lie_on_the_file_system_where_the_stack_file_says_so(tmp_path: Path) -> None:
    prod = training.stack(tmp_path / "prod", "prod", checkpoints="checkpoints")
    assert prod.agent("resnet-primary")["efs"] == [
        {
            "fileSystem": "fs-0a1b2c",
            "accessPoint": "fsap-0a1b2c",
            "path": "/dltraining/checkpoints/resnet",
        }
    ]
