"""Roles are bounded where a boundary is named; previews and deployments get roles of their own."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests import iam
from tests.infra.declared import Run, edited_stack, in_capacity

BOUNDARY = "arn:aws:iam::123456789012:policy/boundary"
POLICY = "arn:aws:iam::123456789012:policy/deploys"
ISSUER = "token.actions.githubusercontent.com"


def with_identity(stack: str = "dev", **identity: Any) -> Run:
    return edited_stack({"identity": identity, "network.flowLogs": "rejected"}, stack)


@pytest.mark.parametrize("stack", ["dev", "fleet"])
def test_the_permissions_boundary_is_on_every_role(stack: str) -> None:
    known = with_identity(
        stack,
        permissionsBoundary=BOUNDARY,
        previews={"repository": "acme@12/models@345"},
        deploys={"policies": [POLICY]},
    )
    roles = known.of("Role")
    assert len(roles) == (8 if stack == "fleet" else 7)
    assert {role["permissionsBoundary"] for role in roles.values()} == {BOUNDARY}


def test_only_jobs_of_the_repository_may_preview() -> None:
    known = with_identity(previews={"repository": "acme@12/models@345", "stateBucket": "acme-state"})
    assert not known.of("OpenIdConnectProvider")
    [trust] = json.loads(known.the("Role", "previews")["assumeRolePolicy"])["Statement"]
    assert trust["Principal"] == {"Federated": f"arn:aws:iam::123456789012:oidc-provider/{ISSUER}"}
    assert trust["Condition"]["StringEquals"][f"{ISSUER}:aud"] == "sts.amazonaws.com"
    allowed = known.policy("previews")["Statement"]
    assert {statement["Sid"]: statement["Resource"] for statement in allowed} == {
        "ReadImages": ["arn:aws:ssm:us-west-2::parameter/aws/service/*"],
        "ReadPrices": ["*"],
        "FindInstances": ["*"],
        "ReadHosts": ["arn:aws:ssm:us-west-2:123456789012:parameter/gpu-spot/dev/groups/*"],
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


def test_a_preview_reads_the_images_that_the_stack_names() -> None:
    own = in_capacity(ami="/own/image", amis={"g5": "ami-0000000a"})
    known = edited_stack({**own, "identity": {"previews": {"repository": "acme@12/models@345"}}})
    images, *_ = known.policy("previews")["Statement"]
    assert images["Resource"] == [
        "arn:aws:ssm:us-west-2::parameter/aws/service/*",
        "arn:aws:ssm:us-west-2:123456789012:parameter/own/image",
    ]


def test_one_stack_of_an_account_may_declare_the_provider() -> None:
    known = with_identity(previews={"repository": "acme@12/models@345", "createProvider": True})
    provider = known.the("OpenIdConnectProvider", "previews")
    assert (provider["url"], provider["clientIdLists"]) == (f"https://{ISSUER}", ["sts.amazonaws.com"])
    [trust] = json.loads(known.the("Role", "previews")["assumeRolePolicy"])["Statement"]
    assert trust["Principal"] == {"Federated": "arn:gpu-spot-dev-previews"}


def test_deployments_have_the_policies_of_the_stack_file_and_may_write_the_state() -> None:
    known = with_identity(
        previews={"repository": "acme@12/models@345", "stateBucket": "acme-state"},
        deploys={"policies": [POLICY, POLICY + "-2"]},
    )
    attached = {name: one["policyArn"] for name, one in known.of("RolePolicyAttachment").items()}
    assert attached == {
        "deploys-123456789012/deploys": POLICY,
        "deploys-123456789012/deploys-2": POLICY + "-2",
        "drift-read-only": "arn:aws:iam::aws:policy/ReadOnlyAccess",
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


def test_a_policy_that_is_removed_from_a_list_leaves_the_others_alone() -> None:
    both, second = (
        with_identity(
            previews={"repository": "acme@12/models@345"},
            deploys={"policies": policies, "driftPolicies": policies},
        )
        for policies in ([POLICY, POLICY + "-2"], [POLICY + "-2"])
    )
    assert second.of("RolePolicyAttachment").items() <= both.of("RolePolicyAttachment").items()


def test_drift_detection_may_have_other_policies_and_without_a_bucket_no_state_is_written() -> None:
    known = with_identity(
        previews={"repository": "acme@12/models@345"},
        deploys={"policies": [POLICY], "driftPolicies": [POLICY + "-looks"]},
    )
    attached = {one["policyArn"] for one in known.of("RolePolicyAttachment").values()}
    assert attached == {POLICY, POLICY + "-looks"}
    assert not [name for name in known.of("RolePolicy") if name.endswith("-deploys")]
    assert {statement["Effect"] for statement in known.policy("drift")["Statement"]} == {"Deny"}
