"""What the stack permits: no more than the code calls, on no more than its own resources."""

from __future__ import annotations

import ast
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import botocore.session
import pytest
from botocore import xform_name

import lambdas
from tests.infra import training
from tests.infra.declared import STACKS, Run, shipped
from userdata.agent.aws import permissions

LAMBDAS = Path(lambdas.__file__).parent

# The service authorisation reference lists no resource type for these.
NO_RESOURCE_LEVEL = {
    "autoscaling:DescribeAutoScalingGroups",
    "autoscaling:DescribeAutoScalingInstances",
    "autoscaling:DescribeScalingActivities",
    "cloudwatch:PutMetricData",
    "ec2:DescribeCapacityReservations",
    "ec2:DescribeInstances",
    "ec2:DescribeLaunchTemplateVersions",
    "ec2:DescribeSnapshots",
    "ec2:DescribeSpotInstanceRequests",
    "ec2:DescribeSpotPriceHistory",
    "ec2:DescribeVolumes",
    # The reference names the fleet as a resource of these three, but no condition on it was tried on AWS.
    "ec2:DescribeSpotFleetInstances",
    "ec2:DescribeSpotFleetRequestHistory",
    "ec2:DescribeSpotFleetRequests",
    "ecr:GetAuthorizationToken",
    "ssmmessages:CreateControlChannel",
    "ssmmessages:CreateDataChannel",
    "ssmmessages:OpenControlChannel",
    "ssmmessages:OpenDataChannel",
    # Its resource is the instance itself, unknown when the role is made.
    "ssm:UpdateInstanceInformation",
}
OURS = "gpu-spot-(dev|fleet|prod|research)-|/gpu-spot/(dev|fleet|prod|research)/"
# Fleets, instances, volumes and snapshots have no names of ours: their tags say whose they are.
BY_TAG = {
    *("MoveFleets", "EndFleetInstances", "MakeVolume", "MakeCopy", "ReadVolume", "MakeSnapshot"),
    *("TagWhatIsMade", "TagVolume", "MoveVolume", "MoveToInstance", "DeleteSnapshot"),
    "GrowVolume",
    "LaunchFromOwnTemplates",
}
# What the stack file names outside of the stack.
BOUND_OTHERWISE = {
    "ReadDataset": None,
    "OpenSecrets": None,
    "StoreArtifacts": None,
    "ForgetParts": None,
    "PullImages": None,
    # Its other half, ``LaunchFromOwnTemplates``, is bound by tag, and AWS asks for both.
    "MakeFleets": {"StringEquals": {"ec2:Region": "us-west-2"}},
}
# The folders of the datasets of ``tests/infra/training.py`` and of the shipped stack.
DATASETS = [{"StringLike": {"s3:prefix": folder}} for folder in ("imagenet/*", "cifar-10/*")]
# Calls of the Systems Manager agent that botocore has no client for.
AGENT_PROTOCOL = {action for action in NO_RESOURCE_LEVEL if action.startswith(("ssm:", "ssmmessages:"))}
NO_OPERATION = AGENT_PROTOCOL | {
    "elasticfilesystem:ClientMount",  # checked when the file system is mounted
    "elasticfilesystem:ClientWrite",
    "s3:ListBucket",  # of the operation ListObjectsV2
}
CLIENTS = {"elasticfilesystem": "efs"}  # where boto3 names a service otherwise than IAM
# What AWS does with the role, not our code.
BY_AWS = {
    "logs:CreateLogStream",
    "logs:PutLogEvents",
    "sqs:ReceiveMessage",
    "sqs:DeleteMessage",
    "sqs:GetQueueAttributes",
}


TRAINING = "training"
"""Not a stack that ships: dev with a training job in a Capacity Block, and an image for its service."""
FILES = "files"
"""The same of prod, with the job's checkpoints on the file system."""


@cache
def declared(stack: str) -> Run:
    if stack not in (TRAINING, FILES):
        return shipped(stack)
    if stack == FILES:
        return training.stack("prod", checkpoints="checkpoints")
    return training.stack(
        capacityBlock=training.BLOCK,
        repositorySecret="code/resnet",
        image=training.IMAGE,
        artifacts="s3://results/resnet/",
    )


def documents(stack: str) -> list[tuple[str, dict[str, Any]]]:
    return [
        (one["name"], json.loads(one["inputs"][key]))
        for one in declared(stack).declared
        for key in ("policy", "assumeRolePolicy")
        if isinstance(one["inputs"].get(key), str) and "Statement" in one["inputs"][key]
    ]


def statements_of(stack: str) -> list[tuple[str, dict[str, Any]]]:
    return [(name, statement) for name, document in documents(stack) for statement in document["Statement"]]


def the(sid: str, stack: str = "dev") -> dict[str, Any]:
    found = [statement for _, statement in statements_of(stack) if statement["Sid"] == sid]
    assert found
    return found[-1]


@pytest.fixture(scope="module")
def all_statements() -> list[tuple[str, dict[str, Any]]]:
    found = [statement for stack in (*STACKS, TRAINING, FILES) for statement in statements_of(stack)]
    assert len(found) > 60
    return found


def is_allowed(statement: dict[str, Any]) -> bool:
    return statement["Effect"] == "Allow"


def test_no_action_is_a_wildcard(all_statements: list[tuple[str, dict[str, Any]]]) -> None:
    for name, statement in all_statements:
        if is_allowed(statement):
            assert not [action for action in statement["Action"] if "*" in action], (name, statement["Sid"])


def test_every_resource_is_ours_unless_aws_offers_no_narrower_one(
    all_statements: list[tuple[str, dict[str, Any]]],
) -> None:
    for name, statement in all_statements:
        for resource in statement.get("Resource", ()):
            if resource == "*":
                assert set(statement["Action"]) <= NO_RESOURCE_LEVEL, (name, statement["Sid"])
            elif statement["Sid"] == "ListDataset":
                assert statement["Condition"] in DATASETS
            elif statement["Sid"] in BOUND_OTHERWISE:
                assert statement.get("Condition") == BOUND_OTHERWISE[statement["Sid"]], statement["Sid"]
            else:
                assert re.search(OURS, resource) or statement["Sid"] in BY_TAG, (name, resource)
                if statement["Sid"] in BY_TAG:
                    asked = statement["Condition"]["StringEquals"]
                    assert {key.partition("/")[2] for key in asked} >= {"gpu-spot:stack"}, statement["Sid"]


def test_groups_are_changed_by_name_and_tag() -> None:
    for sid in ("MoveCapacity", "CompleteHooks"):
        assert the(sid)["Condition"]["StringEquals"]["aws:ResourceTag/gpu-spot:stack"] == "dev"


def test_an_instance_sends_metrics_only_into_its_own_namespace() -> None:
    assert the("SendMetrics")["Condition"] == {"StringEquals": {"cloudwatch:namespace": "gpu-spot/instances"}}


def test_only_a_stack_with_a_block_may_read_reservations() -> None:
    assert OF_BLOCKS in called_operations()
    assert the("ReadBlocks", TRAINING)["Action"] == [OF_BLOCKS]
    assert "ReadBlocks" not in {statement["Sid"] for _, statement in statements_of("dev")}


def test_only_a_stack_with_a_fleet_may_change_fleets() -> None:
    own = ("ObserveFleets", "MoveFleets", "EndFleetInstances")
    assert not [s for _, s in statements_of("dev") if s["Sid"] in own]
    ended = the("EndFleetInstances", "fleet")
    assert ended["Condition"]["StringEquals"] == {
        "aws:ResourceTag/gpu-spot:stack": "fleet",
        "aws:ResourceTag/gpu-spot:side": "primary",
    }


def test_the_health_checker_writes_its_own_items_and_restart_requests_only() -> None:
    remembers, asks = the("RememberHealth"), the("AskForRestarts")
    assert remembers["Condition"]["ForAllValues:StringLike"] == {"dynamodb:LeadingKeys": ["*@health"]}
    assert asks["Condition"]["ForAllValues:StringEquals"] == {
        "dynamodb:Attributes": ["group", "worker", "restart"]
    }
    # A key that is not there satisfies ForAllValues (IAM user guide, "Set operators").
    assert remembers["Condition"]["Null"] == {"dynamodb:LeadingKeys": "false"}
    assert asks["Condition"]["Null"] == {"dynamodb:Attributes": "false"}
    leaves = [one.partition("parameter")[2] for one in the("WriteWishes")["Resource"]]
    assert leaves == [f"/gpu-spot/dev/groups/*/{leaf}" for leaf in ("replacements", "rolling")]
    says = the("SayWhatToStart")
    assert says["Action"] == ["dynamodb:PutItem"]
    assert says["Condition"]["ForAllValues:StringLike"] == {"dynamodb:LeadingKeys": ["*@release"]}


def test_a_fleet_passes_only_the_role_of_its_instances() -> None:
    statement = the("HandOutOneRole", "fleet")
    assert (statement["Effect"], statement["Action"]) == ("Deny", ["iam:PassRole"])
    assert statement["NotResource"] == ["arn:gpu-spot-fleet-inference-instance"]


def test_the_file_system_allows_named_principals_and_denies_plain_text() -> None:
    by_sid = {statement["Sid"]: statement for name, statement in statements_of("prod") if name == "files"}
    assert by_sid["MountThroughMountTargets"]["Principal"] == {"AWS": "arn:aws:iam::123456789012:root"}
    denied = by_sid["OnlyOverTls"]
    assert denied["Effect"] == "Deny"
    assert denied["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}


def test_every_action_exists(all_statements: list[tuple[str, dict[str, Any]]]) -> None:
    session = botocore.session.get_session()
    for _, statement in all_statements:
        for action in statement["Action"] if is_allowed(statement) else ():
            service, operation = action.split(":")
            if action in NO_OPERATION:
                continue
            service = CLIENTS.get(service, service)
            assert operation in session.get_service_model(service).operation_names, action


def granted_to_functions(stack: str) -> set[str]:
    """What controller and health checker may do; tests/e2e compares each with what it does."""
    functions = {f"{name}-function" for name in ("controller", "health-checker")}
    return {
        action
        for name, statement in statements_of(stack)
        if name in functions and statement["Sid"] != "Assume"
        for action in statement["Action"]
    }


# The queue watcher calls these, of a queue in SQS; no stack that ships has one.
OF_SQS = {"cloudwatch:GetMetricData", "sqs:GetQueueAttributes", "sqs:GetQueueUrl"}
OF_BLOCKS = "ec2:DescribeCapacityReservations"
OF_ZONES = "autoscaling:LaunchInstances"


def test_launches_in_a_zone_are_allowed_only_for_jobs_with_a_volume_and_services_in_several_zones() -> None:
    sids = ("LaunchByZone", "LaunchFromOwnTemplates", "MakeFleets", "ReadTemplates")
    found = [the(sid, FILES) for sid in sids]
    assert [statement["Action"] for statement in found] == [
        [OF_ZONES],
        ["ec2:CreateFleet"],
        ["ec2:CreateFleet"],
        ["ec2:DescribeLaunchTemplateVersions"],
    ]
    for statement in found[:2]:
        assert statement["Condition"]["StringEquals"] == {"aws:ResourceTag/gpu-spot:stack": "prod"}
    assert the("LaunchByZone", "dev")["Action"] == [OF_ZONES]
    # Without these the controller cannot launch with CreateFleet by other means.
    granted = granted_to_functions(FILES)
    assert OF_ZONES in granted
    assert not {"ec2:RunInstances", "iam:PassRole"} & granted


def test_functions_have_the_permissions_of_their_calls_only() -> None:
    called = called_operations() - {OF_BLOCKS, OF_ZONES} - OF_SQS
    assert granted_to_functions("fleet") - BY_AWS == called
    of_zones = {OF_ZONES, "ec2:CreateFleet", "ec2:DescribeLaunchTemplateVersions"}  # of LaunchInstances
    assert granted_to_functions("dev") - BY_AWS - of_zones == {
        action for action in called if "Fleet" not in action and action != "ec2:TerminateInstances"
    }


# Permissions outside the functions, and the code that uses each.
USES = {
    "autoscaling:CompleteLifecycleAction": "the node agent, and the boot script when it fails",
    "cloudwatch:PutMetricData": "the CloudWatch agent, and the boot script when it fails",
    "ecr:BatchGetImage": "Docker, to pull worker images",
    "ecr:GetDownloadUrlForLayer": "Docker, to pull worker images",
    "elasticfilesystem:ClientMount": "the mount of the file system",
    "elasticfilesystem:ClientWrite": "the mount of the file system",
    "logs:CreateLogStream": "the flow logs service, the CloudWatch agent",
    "logs:DescribeLogStreams": "the flow logs service, the CloudWatch agent",
    "logs:PutLogEvents": "the flow logs service, the CloudWatch agent",
    "s3:GetObject": "the boot script, a worker that reads a dataset",
    "s3:ListBucket": "a worker that reads a dataset",
    "ssm:GetParameter": "the CloudWatch agent, to read its configuration",
    **dict.fromkeys(AGENT_PROTOCOL, "the Systems Manager agent"),
}


def test_every_permission_outside_the_functions_is_used() -> None:
    granted = {
        action
        for stack in (*STACKS, TRAINING, FILES)
        for name, statement in statements_of(stack)
        if not name.endswith("-function") and is_allowed(statement) and "Resource" in statement
        if "Principal" not in statement
        for action in statement["Action"]
    }
    # tests/node/test_permissions.py compares what instances may do with what they ask.
    of_agent = {action for statement in permissions.STATEMENTS for action in statement.actions}
    # Not these stacks: experiments in a group (test_matrix.py), a shared host, an address (test_http.py).
    assert granted == (set(USES) | of_agent) - {
        *("dynamodb:BatchGetItem", "ec2:DescribeInstanceTypes", "ec2:DescribeInstances")
    }


def role_of(group: str, stack: str) -> list[dict[str, Any]]:
    return [s for name, s in statements_of(stack) if name == f"{group}-instance" and "Resource" in s]


def needed(*needs: str) -> set[str]:
    return {statement.sid for statement in permissions.STATEMENTS if {*needs} & {*statement.needed_by}}


EVERY_INSTANCE = {"FetchAgent", "SessionManager", "ConfigureMetrics", "SendMetrics", "SendLogs"}


@pytest.mark.parametrize(
    ("group", "stack", "needs"),
    [
        ("inference", "dev", ("work", "release", "hooks")),
        ("inference", "fleet", ("work", "release", "hooks")),  # those of its fallback
        ("inference", TRAINING, ("work", "release", "hooks", "image", "pull")),
        ("resnet", TRAINING, ("run", "hooks", "volume", "dataset", "secret", "image", "pull", "artifacts")),
    ],
)
def test_a_role_has_the_permissions_of_its_work_only(group: str, stack: str, needs: tuple[str, ...]) -> None:
    assert {s["Sid"] for s in role_of(group, stack)} == needed(*needs) | EVERY_INSTANCE


def test_a_training_job_may_use_its_own_resources_only() -> None:
    """The others, which the agent asks for: tests/node/test_permissions.py."""
    role = {s["Sid"]: s for s in role_of("resnet", TRAINING)}
    account = "us-west-2:123456789012"
    assert role["ReadDataset"]["Resource"] == ["arn:aws:s3:::datasets/imagenet/*"]
    assert role["StoreArtifacts"]["Resource"] == ["arn:aws:s3:::results/resnet/*"]
    assert role["OpenSecrets"]["Resource"] == [f"arn:aws:secretsmanager:{account}:secret:code/resnet-??????"]


def test_an_image_is_pulled_from_its_own_account_and_repository() -> None:
    assert the("PullImages", TRAINING)["Resource"] == [
        "arn:aws:ecr:us-west-2:210987654321:repository/team/worker"
    ]


def test_inline_policies_fit_into_a_role() -> None:
    # 10,240 characters without white space (IAM quotas).
    for name, document in documents(TRAINING):
        assert len(json.dumps(document, separators=(",", ":"))) < 10_240 / 1.2, name


def called_operations() -> set[str]:
    """Return the IAM actions of all boto3 calls in ``lambdas``: client methods and paginators by name."""
    session = botocore.session.get_session()
    actions = {
        # A batch of SQS's is authorised as so many single calls.
        (service, xform_name(operation)): f"{service}:{operation.removesuffix('Batch')}"
        for service in ("autoscaling", "dynamodb", "ec2", "ssm", "sns", "sqs", "cloudwatch")
        for operation in session.get_service_model(service).operation_names
    }
    found: set[str] = set()
    for path in LAMBDAS.rglob("*.py"):
        tree = ast.parse(path.read_text("utf-8"))
        # An adapter of one service calls its client `client`; the type that it imports tells which.
        imported = {
            (node.module or "").removeprefix("mypy_boto3_").partition(".")[0]
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("mypy_boto3_")
        }
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            receiver = re.sub(r".*\.", "", ast.unparse(node.func.value))
            operation = node.func.attr
            if operation == "get_paginator" and isinstance(node.args[0], ast.Constant):
                operation = str(node.args[0].value)
            services = imported if receiver == "client" else {receiver}
            found |= {actions[service, operation] for service in services if (service, operation) in actions}
    return found


def test_the_calls_of_the_adapters_are_found() -> None:
    assert {
        "autoscaling:SetDesiredCapacity",
        "dynamodb:PutItem",
        "ec2:ModifySpotFleetRequest",
    } <= called_operations()
