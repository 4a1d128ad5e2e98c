"""``pulumi new`` creates a project from the template, and its program deploys with the defaults."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpu_spot.declared.stackfile import load
from pulumi_on_moto import deploy, sandbox
from tests.apart import apart
from tests.package.checked import ROOT

TEMPLATE = ROOT / "templates" / "gpu-spot"


def create_project(folder: Path) -> None:
    """Create a project like ``pulumi new``: names filled in, no ``template``, a stack with the defaults."""
    shutil.copytree(TEMPLATE, folder, dirs_exist_ok=True)
    for path in folder.iterdir():
        text = path.read_text("utf-8").replace("${PROJECT}", "reading").replace("${DESCRIPTION}", "Reads.")
        path.write_text(text, "utf-8")
    project = yaml.safe_load((folder / "Pulumi.yaml").read_text("utf-8"))
    defaults = project.pop("template")["config"]
    (folder / "Pulumi.yaml").write_text(yaml.safe_dump(project), "utf-8")
    config = {key if ":" in key else f"reading:{key}": one["default"] for key, one in defaults.items()}
    (folder / "Pulumi.dev.yaml").write_text(yaml.safe_dump({"config": config}), "utf-8")


def deployed(folder: Path) -> dict[str, Any]:
    stack = load(folder, "dev")
    with sandbox(stack.region) as clients:
        deployment = deploy(clients, stack)
        [group] = clients("autoscaling").describe_auto_scaling_groups(
            AutoScalingGroupNames=[deployment.outputs["group"]]
        )["AutoScalingGroups"]
        target = clients("ssm").get_parameter(Name="/gpu-spot/reading-dev-workers/groups/workers/target")
        return {
            "outputs": dict(deployment.outputs),
            "alone": [one.type for one in deployment.resources if not one.parent],
            "subnets": len(group["VPCZoneIdentifier"].split(",")),
            "target": target["Parameter"]["Value"],
        }


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("project")
    create_project(folder)
    return apart(deployed, folder)


def test_its_program_deploys_a_group_below_one_component(project: dict[str, Any]) -> None:
    assert project["alone"] == ["gpu-spot:index:Service"]
    assert (project["subnets"], project["target"]) == (3, "1")


def test_its_outputs_name_the_parameter_and_a_command(project: dict[str, Any]) -> None:
    assert project["outputs"]["control"] == "/gpu-spot/reading-dev-workers/groups/workers/control"
    assert project["outputs"]["followDecisions"].startswith("aws logs tail ")


def test_each_question_has_a_description_and_a_default() -> None:
    template = yaml.safe_load((TEMPLATE / "Pulumi.yaml").read_text("utf-8"))["template"]
    assert template["description"]
    assert all(one["description"] and one["default"] for one in template["config"].values())
