"""The roles of one stack's jobs reach nothing of another stack: what they trust and may do."""

from __future__ import annotations

import json
from functools import cache
from itertools import product
from typing import Any

import pulumi
import pytest

from tests import iam
from tests.infra.declared import Run, edited_stack, in_service

ACCOUNT = "123456789012"
REGION = "us-west-2"
REPOSITORY = "acme@12/models@345"
SUBJECT = "token.actions.githubusercontent.com:sub"
READ_ONLY = {
    "Statement": [
        {"Effect": "Allow", "Action": ["s3:Get*", "s3:List*", "ssm:Get*"], "Resource": "*"},
        {"Effect": "Allow", "Action": "secretsmanager:GetSecretValue", "Resource": "*"},
    ]
}
"""Of AWS's ReadOnlyAccess what reads data, and more."""
ROLES = ("previews", "deploys", "drift")


def key_arn(stack: str) -> str:
    number = {"dev": 1, "prod": 2}.get(stack, 3)
    return f"arn:aws:kms:{REGION}:{ACCOUNT}:key/{number:08d}-0000-0000-0000-000000000000"


def identity(stack: str) -> dict[str, Any]:
    return {
        "previews": {
            "repository": REPOSITORY,
            "stateBucket": f"acme-state-{stack}",
            "stateKmsKeyArn": key_arn(stack),
        },
        "deploys": {
            "policies": [f"arn:aws:iam::{ACCOUNT}:policy/deploys"],
            "environment": {"dev": "dev", "prod": "production"}[stack],
        },
    }


@cache
def declared(stack: str) -> Run:
    return edited_stack({"identity": identity(stack)}, stack)


def policies(stack: str, role: str) -> list[dict[str, Any]]:
    """The documents of a role; drift detection has AWS's policy, too."""
    own = json.loads(declared(stack).the("RolePolicy", role)["policy"])
    return [own, READ_ONLY] if role == "drift" else [own]


def trusts(stack: str, role: str, end: str) -> bool:
    """Whether a job of the repository may assume a role, as IAM would say."""
    document = json.loads(declared(stack).the("Role", role)["assumeRolePolicy"])
    [statement] = document["Statement"]
    statement.pop("Principal")
    client_id = {SUBJECT.replace(":sub", ":aud"): ["sts.amazonaws.com"]}
    ref = {"environment:dev-preview": "refs/pull/7/merge", "pull_request": "refs/pull/7/merge"}
    claims = {
        "repository_id": "345",
        "ref": ref.get(end, end.removeprefix("ref:") if end.startswith("ref:") else "refs/heads/main"),
        "environment": end.removeprefix("environment:"),
        "job_workflow_ref": "acme/models/.github/workflows/deploy.yml@refs/heads/main",
    }
    named = {SUBJECT.replace("sub", claim): [value] for claim, value in claims.items()}
    context = {SUBJECT: [f"repo:{REPOSITORY}:{end}"], **client_id, **named}
    asked = iam.Request("sts:AssumeRoleWithWebIdentity", context=context)
    return iam.allows([{"Statement": [{**statement, "Resource": "*"}]}], asked)


def state_of(stack: str) -> list[str]:
    """Every kind of object that the engine has for a stack (pulumi/pulumi ``pkg/backend/diy``)."""
    lock = f"locks/organization/gpu-spot/{stack}/6f0c1f6e.json"
    return [
        f"arn:aws:s3:::acme-state-{stack}/.pulumi/{key}"
        for key in (
            *("meta.yaml", f"stacks/gpu-spot/{stack}.json", f"stacks/gpu-spot/{stack}.json.bak", lock),
            *(f"stacks/gpu-spot/{stack}.json.gz", f"stacks/gpu-spot/{stack}.pulumi-tags"),
            f"history/gpu-spot/{stack}/{stack}-1764000000.history.json",
            f"history/gpu-spot/{stack}/{stack}-1764000000.checkpoint.json",
            f"backups/gpu-spot/{stack}/{stack}.1764000000.json",
        )
    ]


def of_stack(stack: str) -> list[iam.Request]:
    """Requests on all that is a stack's: state, keys, secrets, parameters, data and roles."""
    arn = f"arn:aws:{{}}:{REGION}:{ACCOUNT}:"
    parameter = arn.format("ssm") + f"parameter/gpu-spot/{stack}/groups/inference/control"
    return [
        iam.Request("s3:ListBucket", f"arn:aws:s3:::acme-state-{stack}"),
        *(
            iam.Request(f"s3:{action}", key)
            for key in state_of(stack)
            for action in ("GetObject", "PutObject", "DeleteObject", "GetObjectVersion")
        ),
        *(
            iam.Request(f"kms:{action}", key_arn(stack))
            for action in ("Decrypt", "Encrypt", "GenerateDataKey", "CreateGrant", "ReEncryptFrom")
        ),
        iam.Request(
            "secretsmanager:GetSecretValue", arn.format("secretsmanager") + f"secret:gpu-spot-{stack}-mq-1a"
        ),
        *(
            iam.Request(f"ssm:{action}", parameter)
            for action in ("GetParameter", "GetParameters", "GetParameterHistory", "PutParameter")
        ),
        iam.Request("ssm:GetParametersByPath", parameter.rpartition("/")[0]),
        iam.Request("s3:GetObject", f"arn:aws:s3:::gpu-spot-{stack}-bucket-checkpoints-1a2b3c4/step-1"),
        iam.Request("dynamodb:GetItem", arn.format("dynamodb") + f"table/gpu-spot-{stack}-state-1a2b3c4"),
        *(
            iam.Request(action, f"arn:aws:iam::{ACCOUNT}:role/gpu-spot-{stack}-{role}-1a2b3c4")
            for action in ("sts:AssumeRole", "iam:PassRole")
            for role in ROLES
        ),
    ]


@pytest.mark.parametrize(("stack", "other"), [("dev", "prod"), ("prod", "dev"), ("dev", "dev-2")])
@pytest.mark.parametrize("role", ROLES)
def test_a_role_reaches_nothing_of_another_stack(role: str, stack: str, other: str) -> None:
    documents = policies(stack, role)
    requests = of_stack(other)
    assert len(requests) >= 50
    assert [asked for asked in requests if iam.allows(documents, asked)] == []


def test_a_pull_request_of_dev_assumes_devs_preview_role_alone() -> None:
    """Whatever its code does to the workflow: a job with an environment has no other subject."""
    ends = ("environment:dev-preview", "pull_request", "ref:refs/heads/feature", "ref:refs/pull/7/merge")
    others = ("environment:prod-preview", "environment:dev", "environment:production", "ref:refs/heads/main")
    assumed = {one for one in product(("dev", "prod"), ROLES, (*ends, *others)) if trusts(*one)}
    assert assumed == {
        ("dev", "previews", "environment:dev-preview"),
        ("prod", "previews", "environment:prod-preview"),
        ("dev", "deploys", "environment:dev"),
        ("prod", "deploys", "environment:production"),
        ("dev", "drift", "ref:refs/heads/main"),
        ("prod", "drift", "ref:refs/heads/main"),
    }


def test_a_preview_writes_nothing() -> None:
    reads = {"s3:GetObject", "s3:ListBucket", "kms:Decrypt", "ssm:GetParameter", "pricing:GetProducts"}
    assert iam.allowed_actions(policies("dev", "previews")) == reads | {
        "ec2:DescribeInstances",
        "ssm:GetParametersByPath",
        "tag:GetResources",
    }
    own = [asked for asked in of_stack("dev") if iam.allows(policies("dev", "previews"), asked)]
    state = {"s3:ListBucket", "s3:GetObject", "kms:Decrypt"}
    assert {asked.action for asked in own} == state | {"ssm:GetParametersByPath"}


@pytest.mark.parametrize(
    ("role", "actions"),
    [
        ("deploys", {"s3:GetObject", "s3:PutObject", "s3:DeleteObject"}),
        ("previews", {"s3:GetObject"}),
        ("drift", {"s3:GetObject"}),
    ],
)
def test_a_role_reaches_its_own_state(role: str, actions: set[str]) -> None:
    documents = policies("dev", role)
    meta, *keys = state_of("dev")
    for action in ("s3:GetObject", "s3:PutObject", "s3:DeleteObject"):
        allowed = [key for key in keys if iam.allows(documents, iam.Request(action, key))]
        tags = [key for key in keys if key.endswith("-tags")]
        if role == "deploys":
            assert allowed == (keys if action == "s3:GetObject" else [key for key in keys if key not in tags])
        else:
            read = [key for key in keys if key.endswith(("/dev.json", "/dev.json.gz", "-tags"))]
            assert allowed == (read if action in actions else [])
        assert iam.allows(documents, iam.Request(action, meta)) is (action == "s3:GetObject")
    assert iam.allows(documents, iam.Request("s3:ListBucket", "arn:aws:s3:::acme-state-dev"))
    assert iam.allows(documents, iam.Request("kms:Decrypt", key_arn("dev")))
    encrypts = iam.allows(documents, iam.Request("kms:GenerateDataKey", key_arn("dev")))
    assert encrypts is (role == "deploys")


@pytest.mark.parametrize("neighbour", ["dev-2", "dev2", "de"])
def test_in_a_bucket_that_stacks_share_none_reads_another_ones_objects(neighbour: str) -> None:
    """Listing names them: the pages ask for a bucket each."""
    keys = [key.replace(f"acme-state-{neighbour}", "acme-state-dev") for key in state_of(neighbour)[1:]]
    for role in ROLES:
        documents = policies("dev", role)
        for action in ("s3:GetObject", "s3:PutObject", "s3:DeleteObject"):
            assert not [key for key in keys if iam.allows(documents, iam.Request(action, key))]


def test_drift_detection_reads_what_a_refresh_of_the_stack_reads() -> None:
    arn = f"arn:aws:ssm:{REGION}:"
    certificate = f"arn:aws:acm:{REGION}:{ACCOUNT}:certificate/0f0e0d0c-0b0a-0908-0706-050403020100"
    made = edited_stack(
        {
            "identity": identity("dev"),
            "kmsKeyArn": key_arn("of data"),
            "storage.buckets": [{"name": "checkpoints"}],
            **in_service(http={"port": 8000, "certificateArn": certificate}, command=["serve"]),
        }
    )
    documents = [made.policy("drift"), READ_ONLY]
    own = {"aws:ResourceTag/gpu-spot:stack": ["dev"]}
    assert len(made.of("Bucket")) == 3
    for bucket in made.of("Bucket"):
        assert iam.allows(documents, iam.Request("s3:ListBucket", f"arn:{made.physical(bucket)}")), bucket
    for stored in made.of("Parameter").values():
        assert iam.allows(
            documents, iam.Request("ssm:GetParameter", f"{arn}{ACCOUNT}:parameter{stored['name']}")
        )
    for service in ("lambda", "secretsmanager"):
        via = {"kms:ViaService": [f"{service}.{REGION}.amazonaws.com"]}
        assert iam.allows(documents, iam.Request("kms:Decrypt", key_arn("of data"), via))
    archives = f"arn:{made.physical('agent')}/agent/*"
    for asked in (
        iam.Request("s3:GetObject", archives.replace("*", "agent.zip")),
        iam.Request("s3:GetObject", archives.replace("agent/*", "hosts/host/tenants.json")),
        iam.Request(
            "secretsmanager:GetSecretValue", f"arn:aws:secretsmanager:{REGION}:{ACCOUNT}:secret:x", own
        ),
        iam.Request("ssm:GetParameter", f"{arn}:parameter/aws/service/ami-amazon-linux-latest/x"),
        iam.Request("ssm:GetParameter", f"{arn}{ACCOUNT}:parameter/gpu-spot/dev/groups/inference/control"),
        iam.Request("s3:GetBucketPolicy", "arn:aws:s3:::gpu-spot-dev-bucket-agent-1a2b3c4"),
    ):
        assert iam.allows(documents, asked)


@pytest.mark.parametrize("shared", ["environment", "driftEnvironment"])
def test_previews_and_deployments_have_environments_of_their_own(shared: str) -> None:
    named = identity("dev")
    named["previews"]["environment"] = "Shared"
    named["deploys"][shared] = "shared"
    with pytest.raises(
        pulumi.RunError, match=r"environment:Shared is the environment of previews and of deploys; use "
    ):
        edited_stack({"identity": named})
