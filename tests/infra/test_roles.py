"""Roles with AWS managed policies: their software's actions are granted, and little else."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterable, Mapping
from datetime import date
from pathlib import Path
from typing import Any, Final

import pytest

from contracts import names
from tests import iam
from tests.iam import Request, allows
from tests.infra.declared import ROOT, Run, shipped, stack_of
from tests.infra.test_bursts import SCALING, stack
from tests.kubernetes.entries import STACK
from tests.kubernetes.test_own_cluster import CREATED
from tests.oracles import software
from tests.oracles.software import Software
from userdata.agent.aws import permissions

STACKS: Final = tuple(sorted(path.suffixes[0][1:] for path in (ROOT / "stacks").glob("Pulumi.*.yaml")))
ROLES: Final[Mapping[str, tuple[Software, ...]]] = {
    "control-plane": (software.CONTROL_PLANE,),
    "system-nodes": (software.NODE,),
    "gpu-nodes": (software.NODE,),
    "addon-aws-node": (software.NETWORK_PLUGIN,),
    "addon-ebs-csi-controller-sa": (software.VOLUME_DRIVER,),
    "addon-efs-csi-node-sa": (software.FILE_DRIVER,),
    "karpenter-pods": (software.KARPENTER,),
    "keda-pods": (software.KEDA,),
    "inference-fleet": (software.SPOT_FLEET,),
    "instance": (software.SYSTEMS_MANAGER_AGENT, software.CLOUDWATCH_AGENT),
}
OWN_CALLS: Final = {
    "instance": {action for one in permissions.STATEMENTS for action in one.actions}
    | {"s3:GetObject", "s3:ListBucket", "elasticfilesystem:ClientMount", "elasticfilesystem:ClientWrite"}
    | {"sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:ChangeMessageVisibility", "sqs:GetQueueAttributes"}
    | {"sqs:SendMessage", "sqs:GetQueueUrl"}
}
"""What our own code and the stack file's work call; `tests/node/test_permissions.py` compares the calls."""


def roles_of(run: Run) -> dict[str, list[dict[str, Any]]]:
    """Return the policy documents of each role: inline ones, and AWS's as recorded."""
    roles = [name for name, role in run.of("Role").items() if "assumeRolePolicy" in role]
    names = {f"{run.physical(name)}{suffix}": name for name in roles for suffix in ("", "-id")}
    documents: dict[str, list[dict[str, Any]]] = {name: [] for name in roles}
    for policy in run.of("RolePolicy").values():
        if policy["role"] in names:
            documents[names[policy["role"]]].append(json.loads(policy["policy"]))
    for attached in run.of("RolePolicyAttachment").values():
        path = attached["policyArn"].partition(":policy/")[2]
        assert path in software.managed_policies(), f"{path} has no recorded document"
        documents[names[attached["role"]]].append(dict(software.managed_policies()[path]))
    return documents


def named(run: Run) -> Iterable[tuple[str, list[dict[str, Any]]]]:
    for short, documents in roles_of(run).items():
        yield "instance" if short.endswith("-instance") else short, documents


def without_denials(documents: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [
        {**one, "Statement": [part for part in one["Statement"] if part["Effect"] == "Allow"]}
        for one in documents
    ]


def missing(documents: list[dict[str, Any]], needing: Iterable[Software]) -> list[str]:
    """Return the needed requests that a role's documents do not allow."""
    allowed, actions = without_denials(documents), iam.allowed_actions(documents)
    return [
        str(need)
        for one in needing
        for need in one.needed
        if not (need in actions if isinstance(need, str) else iam.allows(allowed, need))
    ]


@pytest.fixture(scope="module")
def rabbitmq_on_kubernetes() -> Run:
    return stack_of({**STACK, "gpu-spot:kubernetes": CREATED})


def test_the_table_has_every_role_that_other_software_uses() -> None:
    found = {short for stack in STACKS for short, _ in named(shipped(stack))}
    ours = {short for short in found if re.search(r"(-function|-pods|^flows)$", short)} - ROLES.keys()
    assert found - ours == ROLES.keys()
    assert len(ROLES) == 10


@pytest.mark.parametrize("stack", STACKS)
def test_a_role_has_what_its_software_calls(stack: str) -> None:
    for short, documents in named(shipped(stack)):
        assert not missing(documents, ROLES.get(short, ())), short


@pytest.mark.parametrize("stack", STACKS)
def test_a_role_has_no_action_that_nothing_calls(stack: str) -> None:
    recorded = software.managed_policies()
    for short, documents in named(shipped(stack)):
        if short in ROLES:
            called = {action for one in ROLES[short] for action in one.actions} | OWN_CALLS.get(short, set())
            attached = [name for name, document in recorded.items() if document in documents]
            spare = {action for name in attached for action in software.SPARE[name][1]}
            assert iam.allowed_actions(documents) - called - spare == set(), short


def test_keda_reads_metrics_only_whatever_the_queue(rabbitmq_on_kubernetes: Run) -> None:
    documents = dict(named(rabbitmq_on_kubernetes))["keda-pods"]
    assert iam.allowed_actions(documents) == software.KEDA.actions


def test_pods_work_with_the_workers_user_of_the_stacks_broker() -> None:
    raw = copy.deepcopy(STACK) | {"gpu-spot:kubernetes": CREATED}
    [service] = [one for one in raw["gpu-spot:services"] if "queue" in one]
    service["queue"] = {"kind": "rabbitmq", "instanceType": "mq.m7g.large"}
    [document] = dict(named(stack_of(raw)))[f"{service['name']}-pods"]
    [reads] = [part for part in document["Statement"] if "secretsmanager:GetSecretValue" in part["Action"]]
    [secret] = reads["Resource"]
    assert secret.endswith(f":secret:gpu-spot-dev-{service['name']}-mq-workers-??????")


def test_a_node_with_the_minimal_policy_alone_cannot_join() -> None:
    # AmazonEKSWorkerNodeMinimalPolicy v1 of 2024-10-02: nodeadm waits for the private DNS name in vain.
    minimal = {"Action": ["eks-auth:AssumeRoleForPodIdentity"], "Resource": "*", "Effect": "Allow"}
    pull = software.managed_policies()["AmazonEC2ContainerRegistryPullOnly"]
    lacking = missing([{"Statement": [minimal]}, dict(pull)], [software.NODE])
    assert [text for text in lacking if "ec2:DescribeInstances" in text]


def test_the_record_has_a_date_a_source_and_only_what_is_attached() -> None:
    record = json.loads(software.RECORD.read_text("utf-8"))
    attached = {
        one["policyArn"].partition(":policy/")[2]
        for stack in STACKS
        for one in shipped(stack).of("RolePolicyAttachment").values()
    }
    assert record["policies"].keys() == attached
    assert date.fromisoformat(record["recorded"]) > date(2026, 1, 1)
    assert record["source"]
    for one in record["policies"].values():
        assert date.fromisoformat(one["created"][:10]) <= date.fromisoformat(record["recorded"])


def test_spare_actions_are_of_recorded_policies() -> None:
    for name, (reason, actions) in software.SPARE.items():
        assert reason
        assert actions <= iam.allowed_actions([software.managed_policies()[name]]), name


def test_the_stack_names_every_policy_as_iam_does() -> None:
    sources = (Path(ROOT) / "infra").rglob("*.py")
    written = {
        name for path in sources for name in re.findall(r'"((?:service-role/)?Amazon\w+)"', path.read_text())
    }
    cluster_policies = {f"AmazonEKS{name}Policy" for name in ("ClusterAdmin", "Edit", "View")}
    assert written - cluster_policies <= software.managed_policies().keys()


GROUP = "inference"
CHECKER = "health-checker"
FUNCTIONS = ("controller", CHECKER, "scaler")
PARAMETERS = {
    names.PARAMETER_TARGET: "scaler",
    names.PARAMETER_REPLACEMENT_REQUESTS: CHECKER,
    names.PARAMETER_CONFIG: None,
    names.PARAMETER_CONTROL: None,
    names.PARAMETER_HEALTH: None,
    names.PARAMETER_SCALING: None,
}
ITEMS = {GROUP: "controller", names.health_memory(GROUP): CHECKER, names.scaling_memory(GROUP): "scaler"}
CAPACITY = (
    "autoscaling:SetDesiredCapacity",
    "autoscaling:TerminateInstanceInAutoScalingGroup",
    "ec2:TerminateInstances",
    "ec2:ModifySpotFleetRequest",
)


@pytest.fixture(scope="module")
def known() -> Run:
    return stack(SCALING)


def policies(known: Run, function: str) -> list[dict[str, Any]]:
    found = [policy["policy"] for name, policy in known.of("RolePolicy").items() if name.startswith(function)]
    assert found
    return [json.loads(text) for text in found]


def writers(known: Run, request: Request) -> list[str]:
    return [function for function in FUNCTIONS if allows(policies(known, function), request)]


def table_of(known: Run, function: str) -> str:
    """Return the ARN of the memory table, as the function's policy names it."""
    return next(
        resource
        for document in policies(known, function)
        for statement in document["Statement"]
        if "dynamodb:PutItem" in statement["Action"]
        for resource in statement["Resource"]
    )


@pytest.mark.parametrize("leaf", PARAMETERS)
def test_a_parameter_of_a_group_has_one_writer(known: Run, leaf: str) -> None:
    name = names.group_parameter("dev", GROUP, leaf)
    [written] = [
        resource
        for document in policies(known, "scaler")
        for statement in document["Statement"]
        if statement["Sid"] == "WriteTargets"
        for resource in statement["Resource"]
    ]
    arn = written.partition("parameter/")[0] + f"parameter{name}"
    expected = PARAMETERS[leaf]
    assert writers(known, Request("ssm:PutParameter", arn)) == ([expected] if expected else [])


@pytest.mark.parametrize("key", ITEMS)
def test_a_memory_has_one_writer(known: Run, key: str) -> None:
    request = Request("dynamodb:PutItem", table_of(known, "scaler"), {"dynamodb:LeadingKeys": [key]})
    assert writers(known, request) == [ITEMS[key]]


@pytest.mark.parametrize("action", CAPACITY)
def test_only_the_controller_changes_capacity(known: Run, action: str) -> None:
    for function in (CHECKER, "scaler"):
        allowed = [
            statement["Sid"]
            for document in policies(known, function)
            for statement in document["Statement"]
            if action in statement["Action"]
        ]
        assert allowed == []
