"""No token of another repository, branch, fork, environment or workflow assumes a role; the right ones do.

Tokens are drawn as GitHub issues them ("OpenID Connect reference"), with subjects as a repository's
administrators may customise them: any claims, of which others choose branch and environment names freely.
"""

from __future__ import annotations

import json
import random
from functools import cache
from typing import Any

import pytest

from infra.settings import SettingsError, load_settings
from tests import iam
from tests.infra.declared import edited_stack

ISSUER = "token.actions.githubusercontent.com"
Token = dict[str, str]
OWNERS = (("acme", "12"), ("acme", "13"), ("evil", "99"), ("acme-models", "14"), ("ACME", "15"))
NAMES = (("models", "345"), ("models", "346"), ("models-2", "347"), ("other", "777"))
BRANCHES = ("main", "main-2", "work", "x/models@345", "environment:production", "Main", "refs/heads/main")
ENVIRONMENTS = ("", "production", "dev-preview", "production-2", "Production", "night", "main")
WORKFLOWS = ("deploy.yml", "preview.yml", "deploy.yaml", "own.yml")
CUSTOM = ("head_ref", "workflow", "context", "repository_owner", "actor", "repository")


@cache
def roles(**named: str) -> dict[str, dict[str, Any]]:
    """The trust of the roles of ``dev``, without principals."""
    deploys = {"policies": ["arn:aws:iam::123456789012:policy/deploys"], **named}
    previews = {"repository": "acme@12/models@345"}
    known = edited_stack({"identity": {"previews": previews, "deploys": deploys}})
    trusts = {}
    for role in ("previews", "deploys", "drift"):
        [statement] = json.loads(known.the("Role", role)["assumeRolePolicy"])["Statement"]
        assert statement.pop("Principal") == {
            "Federated": f"arn:aws:iam::123456789012:oidc-provider/{ISSUER}"
        }
        assert statement["Condition"].keys() == {"StringEquals"}
        assert "*" not in json.dumps(statement["Condition"])
        trusts[role] = {**statement, "Resource": "*"}
    return trusts


def assumes(trust: dict[str, Any], token: Token) -> bool:
    context = {f"{ISSUER}:{claim}": [value] for claim, value in token.items() if value}
    return iam.allows([{"Statement": [trust]}], iam.Request("sts:AssumeRoleWithWebIdentity", context=context))


def issued(draw: random.Random) -> Token:
    """A token: of any repository, event, environment and subject; often almost the right one."""
    owner, name = (OWNERS[0], NAMES[0]) if draw.random() < 0.4 else (draw.choice(OWNERS), draw.choice(NAMES))
    if (owner, name) != (OWNERS[0], NAMES[0]) and name[1] == "345":
        name = (name[0], "9345")  # an id is of one repository
    branch = draw.choice(("main", draw.choice(BRANCHES)))
    ref = draw.choice((f"refs/heads/{branch}", f"refs/tags/{branch}", "refs/pull/7/merge"))
    environment = draw.choice((*ENVIRONMENTS[:3], draw.choice(ENVIRONMENTS)))
    repository, workflow = f"{owner[0]}/{name[0]}", draw.choice(WORKFLOWS)
    ids = draw.choice((repository, f"{owner[0]}@{owner[1]}/{name[0]}@{name[1]}"))
    end = f"environment:{environment}" if environment else f"ref:{ref}"
    if ref.startswith("refs/pull") and not environment:
        end = "pull_request"
    between = ""
    if draw.random() < 0.4:
        keys = draw.sample(CUSTOM, draw.randint(1, 3))
        between = "".join(f"{key}:{draw.choice((*BRANCHES, 'acme@12/models@345', '*'))}:" for key in keys)
    caller = draw.choice((repository, repository, "acme/models", "evil/shared"))
    return {
        "aud": draw.choice(("sts.amazonaws.com", "sts.amazonaws.com", "other")),
        "sub": f"repo:{ids}:{between}{end}",
        "repository_id": name[1],
        "ref": ref,
        "environment": environment,
        "job_workflow_ref": f"{caller}/.github/workflows/{workflow}@{ref}",
        "custom": between,
    }


def may(role: str, token: Token) -> bool:
    """What GitHub's claims say of a job, read one by one."""
    is_ours = token["repository_id"] == "345" and token["aud"] == "sts.amazonaws.com" and not token["custom"]
    on_main = token["ref"] == "refs/heads/main"
    if role == "previews":
        return is_ours and token["environment"] == "dev-preview"
    if role == "drift":
        return is_ours and on_main and not token["environment"]
    deploys = "acme/models/.github/workflows/deploy.yml@refs/heads/main"
    return (
        is_ours
        and on_main
        and token["environment"] == "production"
        and token["job_workflow_ref"].endswith(deploys)
    )


def misjudged(drawn: int) -> list[tuple[str, Token]]:
    """Draw tokens; return those that a role's trust takes for what they are not, with the role."""
    draw, trusts = random.Random(7), roles(environment="production")
    tokens = [issued(draw) for _ in range(drawn)]
    for role in trusts:
        assert sum(may(role, token) for token in tokens) >= drawn / 1_000
    return [
        (role, token)
        for token in tokens
        for role, trust in trusts.items()
        if assumes(trust, token) is not may(role, token)
    ]


@pytest.mark.parametrize("drawn", [3_000, pytest.param(100_000, marks=pytest.mark.soak)])
def test_drawn_tokens_assume_what_they_may_and_nothing_else(drawn: int) -> None:
    assert misjudged(drawn) == []


@pytest.mark.parametrize(
    ("named", "branch", "deploys", "drift"),
    [
        ({}, "main", "", ""),
        ({"branch": "work", "driftEnvironment": "night"}, "work", "", "night"),
        ({"workflow": "own.yml", "environment": "production"}, "main", "production", ""),
    ],
)
def test_the_branch_and_the_workflow_are_exact(
    named: dict[str, str], branch: str, deploys: str, drift: str
) -> None:
    trusts, workflow = roles(**named), named.get("workflow", "deploy.yml")

    def token(environment: str, ref: str, workflow: str) -> Token:
        return {
            "aud": "sts.amazonaws.com",
            "sub": f"repo:acme/models:{f'environment:{environment}' if environment else f'ref:{ref}'}",
            "repository_id": "345",
            "ref": ref,
            "environment": environment,
            "job_workflow_ref": f"acme/models/.github/workflows/{workflow}@{ref}",
        }

    for role, environment in (("deploys", deploys), ("drift", drift)):
        assert assumes(trusts[role], token(environment, f"refs/heads/{branch}", workflow))
        assert not assumes(trusts[role], token(environment, "refs/heads/another", workflow))
        assert not assumes(trusts[role], token("other", f"refs/heads/{branch}", workflow))
    assert not assumes(trusts["deploys"], token(deploys, f"refs/heads/{branch}", "another.yml"))


def test_a_repository_without_ids_is_refused_with_the_command_that_prints_them() -> None:
    config: dict[str, Any] = {"aws:region": "us-west-2"}
    config["gpu-spot:identity"] = {"previews": {"repository": "acme/models"}}
    with pytest.raises(SettingsError) as refused:
        load_settings(config)
    said = str(refused.value)
    assert "identity.previews.repository must be owner@id/name@id, not acme/models without IDs" in said
    assert """gh api repos/acme/models --jq '"\\(.owner.login)@\\(.owner.id)/\\(.name)@\\(.id)"'""" in said
