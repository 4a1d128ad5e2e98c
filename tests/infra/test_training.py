"""A training job: one instance that its volume follows, until the job itself says that it is done."""

from __future__ import annotations

import json
from typing import Any

import pytest

from contracts import names
from contracts.agent.names import JOB_KEY, TAG_JOB
from tests.infra import training
from tests.infra.declared import Run, edited_stack, in_service, shipped


@pytest.fixture(scope="module")
def known() -> Run:
    return training.stack()


def parameter(of: Run, leaf: str) -> dict[str, Any]:
    [declared] = [one for one in of.declared if one["name"] == f"resnet-{leaf}"]
    return declared


def test_it_is_a_managed_group(known: Run) -> None:
    config = known.config("resnet")
    assert config["slots"] == {"g5.xlarge": 1, "g6.xlarge": 1}
    assert config["fallback"] == "gpu-spot-dev-resnet-fallback"
    # A warm instance would outlast the job, and its volume comes later than it.
    assert "warmPool" not in known.the("Group", "resnet-fallback")
    assert parameter(known, "target")["inputs"]["insecureValue"] == "1"
    assert known.exports["groups"]["resnet"]["primary"] == "gpu-spot-dev-resnet-primary"


def test_the_agents_configuration_has_job_volume_and_target(known: Run) -> None:
    config = known.agent("resnet-primary")
    prices = config["training"].pop("prices")
    assert prices["onDemand"] == {"g5.xlarge": 1.006, "g6.xlarge": 0.8048}
    assert config["training"] == {
        "job": "resnet",
        "jobTable": "gpu-spot-dev-jobs",
        "repository": "https://example.com/vision/resnet.git",
        "revision": training.REVISION,
        "command": ["python", "train.py", "--epochs=90"],
        "user": "gpu-spot-job",
        "finishedParameter": known.the("Parameter", "resnet-finished")["name"],
    }
    assert config["volume"] == {"sizeGib": 500, "dataset": "s3://datasets/imagenet/"}
    assert "service" not in config


def test_the_sample_job_starts_what_the_image_has() -> None:
    # Ubuntu 24.04 has `python3` and no `python`.
    assert shipped("research").agent("resnet-primary")["training"]["command"][0] == "python3"


def test_the_agents_configuration_has_the_run_of_the_stack_file() -> None:
    said = training.stack(
        environment={"EPOCHS": "90", "NAME": "a b=c"},
        maxRestarts=2,
        repositorySecret="code/resnet",
        python={"version": "3.12", "requirements": "envs/gpu.txt"},
        submodules=True,
        throughputMib=500,
        snapshotEveryMinutes=0,
        initializationRateMib=300,
    ).agent("resnet-fallback")
    assert said["training"]["environment"] == {"EPOCHS": "90", "NAME": "a b=c"}
    assert said["training"]["maxRestarts"] == 2
    assert said["training"]["repositorySecret"] == "code/resnet"
    assert said["training"]["submodules"] is True
    assert said["training"]["python"] == {"version": "3.12", "requirements": "envs/gpu.txt"}
    assert said["volume"]["throughputMib"] == 500
    assert said["volume"]["snapshotEveryMinutes"] == 0
    assert said["volume"]["initializationRateMib"] == 300


@pytest.mark.parametrize("image", [training.IMAGE, None])
def test_a_services_command_runs_in_its_image_or_as_an_unprivileged_user(image: str | None) -> None:
    edit = in_service(command=["serve", "--fast"], environment={"MODEL": "x"}, image=image)
    config = edited_stack(edit).agent("inference-primary")["service"]
    assert (config["command"], config["environment"]) == (["serve", "--fast"], {"MODEL": "x"})
    assert (config.get("image"), config.get("user")) == (image, None if image else "gpu-spot-job")


@pytest.mark.parametrize(
    ("kind", "is_nvidia"), [("trn1.2xlarge", False), ("g4ad.xlarge", False), ("g5.xlarge", True)]
)
def test_nvidias_tools_are_for_nvidias_accelerators(kind: str, is_nvidia: bool) -> None:
    capacity = {"kind": "mixed-asg", "target": 1, "instanceTypes": [kind], "ami": "ami-0123456789abcdef0"}
    one = training.stack(capacity=capacity)
    assert one.agent("resnet-primary").get("nvidia", True) is is_nvidia
    cloudwatch = json.loads(one.the("Parameter", "resnet-agent")["insecureValue"])
    assert "metrics" not in cloudwatch  # the agent's own format has them
    assert "emf" in cloudwatch["logs"]["metrics_collected"]
    # What it says of checkpoints and queues goes out all the same.
    assert "gpu-spot-metrics.service" in one.cloud_config("resnet-primary")
    [board] = one.of("Dashboard").values()
    titles = [widget["properties"]["title"] for widget in json.loads(board["dashboardBody"])["widgets"]]
    assert ("resnet: GPUs" in titles) is is_nvidia
    assert "inference: GPUs" in titles


def test_a_finished_job_stays_finished_and_another_revision_runs(known: Run) -> None:
    # The job writes which revision has ended, and `up` leaves that word alone.
    finished = parameter(known, "finished")
    assert (finished["inputs"]["insecureValue"], finished["ignore_changes"]) == ("none", ["insecureValue"])
    # It counts for the revision that the stack file asks for, which only the program writes.
    config = parameter(known, "config")
    assert json.loads(config["inputs"]["insecureValue"])["run"] == training.REVISION
    assert parameter(known, "target")["ignore_changes"] == config["ignore_changes"] == []
    other = training.stack(revision="f" * 40)
    assert json.loads(parameter(other, "config")["inputs"]["insecureValue"])["run"] == "f" * 40
    assert parameter(other, "finished")["inputs"] == finished["inputs"]
    # A service never ends.
    assert not [one for one in known.declared if one["name"] == "inference-finished"]


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


def test_checkpoints_lie_on_the_file_system_where_the_stack_file_says_so() -> None:
    prod = training.stack("prod", checkpoints="checkpoints")
    assert prod.agent("resnet-primary")["efs"] == [
        {"fileSystem": "fs-0a1b2c", "accessPoint": "fsap-0a1b2c", "path": "/dltraining/checkpoints"}
    ]
    of_job, of_service = (prod.statements(f"{group}-instance") for group in ("resnet", "inference"))
    assert of_job["MountFiles"]["Condition"] == {
        "StringEquals": {"elasticfilesystem:AccessPointArn": ["arn:gpu-spot-prod-files-checkpoints"]}
    }
    assert "MountFiles" not in of_service


def test_a_budget_reaches_the_controller_with_the_prices_to_count_by_and_has_an_alarm(known: Run) -> None:
    bounded = training.stack(budget=250)
    config = bounded.config("resnet")
    assert config["budget"] == 250
    assert config["ownPrices"].keys() == config["slots"].keys()
    assert min(config["ownPrices"].values()) > 0
    alarm = bounded.the("MetricAlarm", "resnet-budget")
    assert (alarm["metricName"], alarm["dimensions"]["group"]) == (names.METRIC_BUDGET_AT_RISK, "resnet")
    assert known.config("resnet")["budget"] == 0
    assert "resnet-budget" not in known.of("MetricAlarm")


def test_a_deadline_reaches_the_controller_and_has_an_alarm(known: Run) -> None:
    due = training.stack(deadline="2027-03-01T18:00:00+01:00")
    config = due.config("resnet")
    assert config["deadline"] == 1803920400.0
    alarm = due.the("MetricAlarm", "resnet-deadline")
    assert (alarm["metricName"], alarm["dimensions"]["group"]) == (names.METRIC_DEADLINE_AT_RISK, "resnet")
    assert known.config("resnet")["deadline"] == 0
    assert "resnet-deadline" not in known.of("MetricAlarm")
