"""Roles are bounded where a boundary is named; previews get a role of their own."""

from __future__ import annotations

import json
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

from tests.infra.declared import ROOT, Run, run, variant

BOUNDARY = "arn:aws:iam::123456789012:policy/boundary"
ISSUER = "token.actions.githubusercontent.com"


def with_identity(tmp_path: Path, stack: str = "dev", **identity: Any) -> Run:
    def change(config: dict[str, Any]) -> None:
        config["gpu-spot:identity"] = identity
        config["gpu-spot:network"]["flowLogs"] = "rejected"

    return run("known", variant(tmp_path, change, ROOT / f"Pulumi.{stack}.yaml"), stack)


@pytest.mark.parametrize("stack", ["dev", "fleet"])
def test_a_boundary_bounds_every_role(stack: str, tmp_path: Path) -> None:
    known = with_identity(
        tmp_path, stack, permissionsBoundary=BOUNDARY, previews={"repository": "acme/models"}
    )
    roles = known.of("Role")
    assert len(roles) == (6 if stack == "fleet" else 5)
    assert {role["permissionsBoundary"] for role in roles.values()} == {BOUNDARY}


def test_only_pull_requests_of_the_repository_may_preview(tmp_path: Path) -> None:
    known = with_identity(tmp_path, previews={"repository": "acme/models", "stateBucket": "acme-state"})
    assert not known.of("OpenIdConnectProvider")
    [trust] = json.loads(known.the("Role", "previews")["assumeRolePolicy"])["Statement"]
    assert trust["Principal"] == {"Federated": f"arn:aws:iam::123456789012:oidc-provider/{ISSUER}"}
    assert trust["Condition"]["StringEquals"] == {
        f"{ISSUER}:aud": "sts.amazonaws.com",
    }
    allowed = json.loads(known.the("RolePolicy", "previews")["policy"])["Statement"]
    assert {statement["Sid"]: statement["Resource"] for statement in allowed} == {
        "ReadImages": ["arn:aws:ssm:us-west-2::parameter/aws/service/*"],
        "FindNetwork": ["*"],
        "ListState": ["arn:aws:s3:::acme-state"],
        "ReadState": ["arn:aws:s3:::acme-state/.pulumi/*"],
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

    assert all(fits(f"repo:{name}:pull_request") for name in trusted)
    assert not any(fits(f"repo:{name}:pull_request") for name in strangers)
    assert not any(fits(f"repo:{name}:ref:refs/heads/main") for name in trusted)


def test_a_preview_reads_the_images_that_the_stack_names(tmp_path: Path) -> None:
    def change(config: dict[str, Any]) -> None:
        config["gpu-spot:services"][0]["capacity"] |= {"ami": "/own/image", "amis": {"g5": "ami-0000000a"}}
        config["gpu-spot:identity"] = {"previews": {"repository": "acme/models"}}

    known = run("known", variant(tmp_path, change))
    images, _ = json.loads(known.the("RolePolicy", "previews")["policy"])["Statement"]
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
