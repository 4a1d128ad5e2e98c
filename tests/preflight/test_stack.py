"""The stack files of this repository, declared before a deployment; each in a process of its own."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import boto3
import pytest
import yaml
from pulumi.runtime import settings

from gpu_spot.declared.stackfile import load
from gpu_spot.errors import UserError
from gpu_spot.preflight.actions import ACTIONS
from gpu_spot.preflight.stack import Stack, declare, read
from tests.apart import apart
from tests.infra.declared import shipped

REPOSITORY = Path(__file__).parents[2]
# Actions that are not operations of boto3's: the service authorisation reference has them.
NO_OPERATION = {
    "budgets:ModifyBudget",
    "budgets:ViewBudget",
    "iam:PassRole",
    "s3:ListBucket",
    "s3:PutBucketPublicAccessBlock",
    "s3:PutEncryptionConfiguration",
    "s3:PutLifecycleConfiguration",
}
CLIENTS = {"elasticfilesystem": "efs", "elasticloadbalancing": "elbv2"}


def types(folder: str, name: str) -> tuple[str, list[str], dict[str, Any]]:
    """What `read` runs in a process that it starts: this one is forked from one with the imports."""
    return seen(declare(load(Path(folder), name)))


def seen(stack: Stack) -> tuple[str, list[str], dict[str, Any]]:
    fleet = next(iter(stack.of_type("aws:ec2/spotFleetRequest:SpotFleetRequest")), {})
    return stack.region, sorted({one.type for one in stack.declared}), dict(fleet)


def test_a_stack_is_read_in_a_process_of_its_own() -> None:
    before = settings.get_root_resource()
    region, found, fleet = seen(read(REPOSITORY, "fleet"))
    assert region == "us-west-2"
    assert set(found) == {one["type"] for one in shipped("fleet").declared if one["custom"]}
    assert fleet["iamFleetRole"]
    assert settings.get_root_resource() is before


@pytest.mark.parametrize("name", ["dev", "eks", "fleet", "ocr", "prod", "research"])
def test_every_declared_type_has_permissions(name: str) -> None:
    declared = {one["type"] for one in shipped(name).declared if one["custom"]}
    assert {type_ for type_ in declared if type_.startswith("aws:")} <= ACTIONS.keys()


def project(folder: Path) -> None:
    """Make a folder a project with the program, without stack files."""
    shutil.copy(REPOSITORY / "Pulumi.yaml", folder)
    (folder / "infra").symlink_to(REPOSITORY / "infra")
    (folder / "stacks").mkdir()


def test_a_stack_with_an_image_parameter_of_its_own_is_read(tmp_path: Path) -> None:
    project(tmp_path)
    content = yaml.safe_load((REPOSITORY / "stacks" / "Pulumi.fleet.yaml").read_text())
    content["config"]["gpu-spot:services"][0]["capacity"]["ami"] = "/images/mine"
    (tmp_path / "stacks" / "Pulumi.own.yaml").write_text(yaml.safe_dump(content))
    _, _, fleet = apart(types, str(tmp_path), "own")
    assert fleet


def test_a_stack_with_allowed_sources_of_a_broker_is_read(tmp_path: Path) -> None:
    project(tmp_path)
    content = yaml.safe_load((REPOSITORY / "stacks" / "Pulumi.dev.yaml").read_text())
    queue = {"kind": "rabbitmq", "instanceType": "mq.m7g.large", "allowedSources": ["sg-0123456789abcdef0"]}
    content["config"]["gpu-spot:services"][0] |= {"command": ["serve"], "queue": queue}
    (tmp_path / "stacks" / "Pulumi.queue.yaml").write_text(yaml.safe_dump(content))
    _, found, _ = apart(types, str(tmp_path), "queue")
    assert "aws:mq/broker:Broker" in found
    assert {type_ for type_ in found if type_.startswith("aws:")} <= ACTIONS.keys()


def test_a_stack_in_an_existing_network_is_read(tmp_path: Path) -> None:
    project(tmp_path)
    content = yaml.safe_load((REPOSITORY / "stacks" / "Pulumi.dev.yaml").read_text())
    content["config"]["gpu-spot:network"] = {
        "vpcId": "vpc-0123456789abcdef0",
        "subnets": {"us-west-2a": "subnet-0123456789abcdef0"},
    }
    (tmp_path / "stacks" / "Pulumi.given.yaml").write_text(yaml.safe_dump(content))
    _, found, _ = apart(types, str(tmp_path), "given")
    assert "aws:ec2/vpc:Vpc" not in found
    assert "aws:autoscaling/group:Group" in found


def test_an_invalid_setting_has_the_error_of_a_preview(tmp_path: Path) -> None:
    project(tmp_path)
    content = yaml.safe_load((REPOSITORY / "stacks" / "Pulumi.dev.yaml").read_text())
    content["config"]["gpu-spot:network"]["cidr"] = "10.0.0.0/8"
    (tmp_path / "stacks" / "Pulumi.wrong.yaml").write_text(yaml.safe_dump(content))
    with pytest.raises(
        UserError, match="gpu-spot:network\\.cidr must be a network from /16 to /20, not a /8"
    ):
        read(tmp_path, "wrong")


def test_every_action_exists() -> None:
    session = boto3.session.Session(region_name="us-east-1")
    for action in {action for actions in ACTIONS.values() for action in actions} - NO_OPERATION:
        service, _, operation = action.partition(":")
        client = session.client(
            CLIENTS.get(service, service), aws_access_key_id="x", aws_secret_access_key="x"
        )
        assert operation in client.meta.service_model.operation_names, action
