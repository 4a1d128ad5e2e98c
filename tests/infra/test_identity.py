"""Roles are bounded where a boundary is named; previews get a role of their own."""

from __future__ import annotations

import json
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
    assert len(roles) == (5 if stack == "fleet" else 4)
    assert {role["permissionsBoundary"] for role in roles.values()} == {BOUNDARY}


def test_only_pull_requests_of_the_repository_may_preview(tmp_path: Path) -> None:
    known = with_identity(tmp_path, previews={"repository": "acme/models", "stateBucket": "acme-state"})
    assert not known.of("OpenIdConnectProvider")
    [trust] = json.loads(known.the("Role", "previews")["assumeRolePolicy"])["Statement"]
    assert trust["Principal"] == {"Federated": f"arn:aws:iam::123456789012:oidc-provider/{ISSUER}"}
    assert trust["Condition"]["StringEquals"] == {
        f"{ISSUER}:aud": "sts.amazonaws.com",
        f"{ISSUER}:sub": "repo:acme/models:pull_request",
    }
    allowed = json.loads(known.the("RolePolicy", "previews")["policy"])["Statement"]
    assert {statement["Sid"]: statement["Resource"] for statement in allowed} == {
        "ReadImages": ["arn:aws:ssm:us-west-2::parameter/aws/service/*"],
        "ListState": ["arn:aws:s3:::acme-state"],
        "ReadState": ["arn:aws:s3:::acme-state/.pulumi/*"],
        "LockState": ["arn:aws:s3:::acme-state/.pulumi/locks/*"],
    }
    assert known.exports["previewRoleArn"] == "arn:gpu-spot-dev-previews"


def test_one_stack_of_an_account_may_declare_the_provider(tmp_path: Path) -> None:
    known = with_identity(tmp_path, previews={"repository": "acme/models", "createProvider": True})
    provider = known.the("OpenIdConnectProvider", "previews")
    assert (provider["url"], provider["clientIdLists"]) == (f"https://{ISSUER}", ["sts.amazonaws.com"])
    [trust] = json.loads(known.the("Role", "previews")["assumeRolePolicy"])["Statement"]
    assert trust["Principal"] == {"Federated": "arn:gpu-spot-dev-previews"}
