"""Roles are bounded where a boundary is named; previews and deployments get roles of their own."""

from __future__ import annotations

import json
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

from tests import iam
from tests.infra.declared import ROOT, Run, run, variant

BOUNDARY = "arn:aws:iam::123456789012:policy/boundary"
POLICY = "arn:aws:iam::123456789012:policy/deploys"
PREVIEWS_OF_DEV = "environment:dev-preview"
ISSUER = "token.actions.githubusercontent.com"


def with_identity(tmp_path: Path, stack: str = "dev", **identity: Any) -> Run:
    def change(config: dict[str, Any]) -> None:
        config["gpu-spot:identity"] = identity
        config["gpu-spot:network"]["flowLogs"] = "rejected"

    return run("known", variant(tmp_path, change, ROOT / "stacks" / f"Pulumi.{stack}.yaml"), stack)


@pytest.mark.parametrize("stack", ["dev", "fleet"])
def test_the_permissions_boundary_is_on_every_role(stack: str, tmp_path: Path) -> None:
    known = with_identity(
        tmp_path,
        stack,
        permissionsBoundary=BOUNDARY,
        previews={"repository": "acme/models"},
        deploys={"policies": [POLICY]},
    )
    roles = known.of("Role")
    assert len(roles) == (8 if stack == "fleet" else 7)
    assert {role["permissionsBoundary"] for role in roles.values()} == {BOUNDARY}


def test_only_jobs_of_the_repository_may_preview(tmp_path: Path) -> None:
    known = with_identity(tmp_path, previews={"repository": "acme/models", "stateBucket": "acme-state"})
    assert not known.of("OpenIdConnectProvider")
    [trust] = json.loads(known.the("Role", "previews")["assumeRolePolicy"])["Statement"]
    assert trust["Principal"] == {"Federated": f"arn:aws:iam::123456789012:oidc-provider/{ISSUER}"}
    assert trust["Condition"]["StringEquals"] == {f"{ISSUER}:aud": "sts.amazonaws.com"}
    allowed = known.policy("previews")["Statement"]
    assert {statement["Sid"]: statement["Resource"] for statement in allowed} == {
        "ReadImages": ["arn:aws:ssm:us-west-2::parameter/aws/service/*"],
        "ReadPrices": ["*"],
        "ListState": ["arn:aws:s3:::acme-state"],
        "ReadState": [
            f"arn:aws:s3:::acme-state/.pulumi/{key}"
            for key in (
                *("meta.yaml", "stacks/gpu-spot/dev.json", "stacks/gpu-spot/dev.json.gz"),
                *("stacks/gpu-spot/dev.json.zst", "stacks/gpu-spot/dev.pulumi-tags"),
            )
        ],
    }
    assert known.exports["previewRoleArn"] == "arn:gpu-spot-dev-previews"


@pytest.mark.parametrize(
    ("repository", "trusted", "strangers"),
    [
        (
            "acme/models",
            ("acme/models", "acme@12/models@345"),
            ("acme/models-2", "acme@12/other@345", "evil/models", "evil@12/models@345", "acme/models@3"),
        ),
        (
            "acme@12/models@345",
            ("acme@12/models@345",),
            ("acme/models", "acme@13/models@345", "acme@12/models@346"),
        ),
    ],
)
def test_both_of_githubs_subjects_are_trusted_and_ids_are_exact(
    repository: str, trusted: tuple[str, ...], strangers: tuple[str, ...], tmp_path: Path
) -> None:
    known = with_identity(tmp_path, previews={"repository": repository})
    [statement] = json.loads(known.the("Role", "previews")["assumeRolePolicy"])["Statement"]
    patterns = statement["Condition"]["StringLike"][f"{ISSUER}:sub"]

    def fits(subject: str) -> bool:
        return any(fnmatchcase(subject, pattern) for pattern in patterns)

    assert all(fits(f"repo:{name}:{PREVIEWS_OF_DEV}") for name in trusted)
    assert not any(fits(f"repo:{name}:{PREVIEWS_OF_DEV}") for name in strangers)
    assert not any(
        fits(f"repo:{name}:{end}") for end in ("ref:refs/heads/main", "pull_request") for name in trusted
    )


def test_a_preview_reads_the_images_that_the_stack_names(tmp_path: Path) -> None:
    def change(config: dict[str, Any]) -> None:
        config["gpu-spot:services"][0]["capacity"] |= {"ami": "/own/image", "amis": {"g5": "ami-0000000a"}}
        config["gpu-spot:identity"] = {"previews": {"repository": "acme/models"}}

    known = run("known", variant(tmp_path, change))
    images, *_ = known.policy("previews")["Statement"]
    assert images["Resource"] == [
        "arn:aws:ssm:us-west-2::parameter/aws/service/*",
        "arn:aws:ssm:us-west-2:123456789012:parameter/own/image",
    ]


def test_one_stack_of_an_account_may_declare_the_provider(tmp_path: Path) -> None:
    known = with_identity(tmp_path, previews={"repository": "acme/models", "createProvider": True})
    provider = known.the("OpenIdConnectProvider", "previews")
    assert (provider["url"], provider["clientIdLists"]) == (f"https://{ISSUER}", ["sts.amazonaws.com"])
    [trust] = json.loads(known.the("Role", "previews")["assumeRolePolicy"])["Statement"]
    assert trust["Principal"] == {"Federated": "arn:gpu-spot-dev-previews"}


def trusts(known: Run, role: str, subject: str, client_id: str = "sts.amazonaws.com") -> bool:
    """Whether a job with a subject may assume a role, as IAM would say."""
    document = json.loads(known.the("Role", role)["assumeRolePolicy"])
    [statement] = document["Statement"]
    assert statement.pop("Principal") == {"Federated": f"arn:aws:iam::123456789012:oidc-provider/{ISSUER}"}
    context = {f"{ISSUER}:sub": [subject], f"{ISSUER}:aud": [client_id]}
    asked = iam.Request("sts:AssumeRoleWithWebIdentity", context=context)
    return iam.allows([{**document, "Statement": [{**statement, "Resource": "*"}]}], asked)


MAIN, PRODUCTION = "ref:refs/heads/main", "environment:production"
ENDS = (
    *(MAIN, PRODUCTION, "environment:dev", "environment:production-2", "pull_request", "ref:refs/tags/main"),
    *(PREVIEWS_OF_DEV, "environment:prod-preview", "environment:night"),
    *("ref:refs/heads/main-2", "ref:refs/heads/work", f"environment:x%3A{PRODUCTION}"),
)


@pytest.mark.parametrize(
    ("named", "deploys", "drift"),
    [
        ({"environment": "production"}, {PRODUCTION}, {MAIN}),
        ({}, {MAIN}, {MAIN}),
        ({"driftEnvironment": "night"}, {MAIN}, {"environment:night"}),
        ({"branch": "work"}, {"ref:refs/heads/work"}, {"ref:refs/heads/work"}),
    ],
)
def test_only_jobs_of_the_environment_deploy_and_only_those_of_the_branch_detect_drift(
    named: dict[str, str], deploys: set[str], drift: set[str], tmp_path: Path
) -> None:
    settings = {"policies": [POLICY], **named}
    known = with_identity(tmp_path, previews={"repository": "acme/models"}, deploys=settings)
    for role, trusted in (("deploys", deploys), ("drift", drift), ("previews", {PREVIEWS_OF_DEV})):
        for name in ("acme/models", "acme@12/models@345"):
            assert {end for end in ENDS if trusts(known, role, f"repo:{name}:{end}")} == trusted
            assert not any(trusts(known, role, f"repo:{name}:{end}", "other") for end in trusted)
        for stranger in ("evil/models", "acme/models-2", "acme@12/other@345", "evil@12/models@345"):
            assert not any(trusts(known, role, f"repo:{stranger}:{end}") for end in ENDS)


def test_deployments_have_the_policies_of_the_stack_file_and_may_write_the_state(tmp_path: Path) -> None:
    known = with_identity(
        tmp_path,
        previews={"repository": "acme/models", "stateBucket": "acme-state"},
        deploys={"policies": [POLICY, POLICY + "-2"]},
    )
    attached = {name: one["policyArn"] for name, one in known.of("RolePolicyAttachment").items()}
    assert attached == {
        "deploys-0": POLICY,
        "deploys-1": POLICY + "-2",
        "drift-0": "arn:aws:iam::aws:policy/ReadOnlyAccess",
    }
    state = "arn:aws:s3:::acme-state/.pulumi/stacks/gpu-spot/dev.json"
    for role, writes in (("deploys", True), ("drift", False), ("previews", False)):
        policy = [known.policy(role)]
        assert iam.allows(policy, iam.Request("s3:GetObject", state))
        for action in ("s3:PutObject", "s3:DeleteObject"):
            assert iam.allows(policy, iam.Request(action, state)) is writes
            assert not iam.allows(policy, iam.Request(action, "arn:aws:s3:::acme-state/other"))
    exports = {"previewRoleArn": "previews", "deployRoleArn": "deploys", "driftRoleArn": "drift"}
    assert {key: known.exports[key] for key in exports} == {
        key: f"arn:gpu-spot-dev-{name}" for key, name in exports.items()
    }


def test_drift_detection_may_have_other_policies_and_without_a_bucket_no_state_is_written(
    tmp_path: Path,
) -> None:
    known = with_identity(
        tmp_path,
        previews={"repository": "acme/models"},
        deploys={"policies": [POLICY], "driftPolicies": [POLICY + "-looks"]},
    )
    assert known.the("RolePolicyAttachment", "drift-0")["policyArn"] == POLICY + "-looks"
    assert not [name for name in known.of("RolePolicy") if name.endswith("-deploys")]
    [statement] = known.policy("drift")["Statement"]
    assert statement["Effect"] == "Deny"
