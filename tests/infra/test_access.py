"""Secrets and permissions of an entry: its role or its pods' has exactly those; plain keys are refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from infra.schema.access import looks_like_a_key
from policy.rules.access import RULES
from policy.rules.model import Subject
from tests.infra import training
from tests.infra.declared import Run, edited_stack, in_service, stack_of
from tests.kubernetes.entries import STACK
from tests.kubernetes.test_stack import objects

POLICY = "arn:aws:iam::123456789012:policy/team/read-models"
ACCESS: dict[str, Any] = {
    "secrets": {
        "HF_TOKEN": "team/hf",
        "KEY": "team/keys:vllm",
        "OTHER": "team/keys:other",
        "P": "ssm:/team/p",
    },
    "permissions": [{"actions": ["s3:GetObject"], "resources": ["arn:aws:s3:::models/*"]}],
    "policyArns": [POLICY],
}


@pytest.fixture(scope="module")
def known() -> Run:
    return edited_stack({**in_service(command=["serve"], **ACCESS), "training": [training.job(**ACCESS)]})


@pytest.mark.parametrize("group", ["inference", "resnet"])
def test_the_role_reads_the_named_secrets_and_has_the_permissions(known: Run, group: str) -> None:
    role = f"{group}-instance"
    statements = known.statements(role)
    names = [arn.partition(":secret:")[2] for arn in statements["OpenSecrets"]["Resource"]]
    assert names == ["team/hf-??????", "team/keys-??????"]
    [parameter] = statements["ReadParameters"]["Resource"]
    assert parameter.endswith(":parameter/team/p")
    assert statements["OfCommand1"] == {
        "Sid": "OfCommand1",
        "Effect": "Allow",
        "Action": ["s3:GetObject"],
        "Resource": ["arn:aws:s3:::models/*"],
    }
    attached = [one["policyArn"] for name, one in known.of("RolePolicyAttachment").items() if role in name]
    assert attached == [POLICY]


def test_what_the_stack_stores_has_the_names_alone(known: Run) -> None:
    assert "team/keys:vllm" in json.dumps(known.agent("resnet-primary"))
    assert known.agent("resnet-primary")["training"]["usesAws"] is True


def test_a_pod_has_an_identity_for_them_and_reads_them_by_the_driver() -> None:
    raw = json.loads(json.dumps(STACK))
    for entry in (raw["gpu-spot:services"][0], raw["gpu-spot:training"][0]):
        entry |= ACCESS
    found = stack_of(raw)
    for group in (raw["gpu-spot:services"][0]["name"], raw["gpu-spot:training"][0]["name"]):
        statements = found.statements(f"{group}-pods")
        assert statements["ReadParameters"]["Action"] == ["ssm:GetParameters"]
        assert len([arn for arn in statements["ReadQueueSecrets"]["Resource"] if "team/" in arn]) == 2
        assert any(f"{group}-pods" in name for name in found.of("PodIdentityAssociation"))
        [provider] = [
            one for one in objects(found) if one["metadata"]["name"].startswith(f"{group}-secrets-")
        ]
        listed = json.loads(provider["spec"]["parameters"]["objects"])
        assert [one["objectName"] for one in listed] == ["team/hf", "team/keys", "/team/p"]
        assert [one["path"] for one in listed[1]["jmesPath"]] == ['"vllm"', '"other"']
        keys = {one["key"] for one in provider["spec"]["secretObjects"][0]["data"]}
        assert keys == ACCESS["secrets"].keys()
        [work] = [
            one
            for one in objects(found)
            if one["metadata"]["name"] == group and "template" in one.get("spec", {})
        ]
        variables = {one["name"]: one for one in work["spec"]["template"]["spec"]["containers"][0]["env"]}
        assert all("value" not in variables[name] for name in ACCESS["secrets"])


@pytest.mark.parametrize(
    ("permission", "said"),
    [
        ({"Action": ["s3:*"], "Resource": ["arn:aws:s3:::models/*"]}, "allows s3:*; "),
        ({"Action": ["s3:GetObject"], "Resource": ["*"]}, "allows s3:GetObject on every resource (*); "),
        ({"Action": ["s3:GetObject"], "Resource": ["arn:aws:s3:::models/*"]}, ""),
    ],
)
def test_the_policy_pack_judges_them(permission: dict[str, Any], said: str) -> None:
    document = json.dumps({"Statement": [{"Sid": "OfCommand1", "Effect": "Allow", **permission}]})
    kind, name = "aws:iam/rolePolicy:RolePolicy", "gpu-spot-dev-inference-instance"
    [rule] = [rule for rule in RULES if rule.name == "no-wildcards"]
    assert rule.check is not None
    messages = [
        *rule.check(
            Subject(kind, name, f"urn:pulumi:dev::gpu-spot::{kind}::{name}", {"policy": document}), {}, {}
        )
    ]
    assert [said in message for message in messages] == ([True] if said else [])


USUAL = """
MAX_TOKENS=8192 EOS_TOKEN=end_of_text TOKENIZER=meta-llama/Llama-3 HF_TOKEN_PATH=/run/token MODEL=sk-learn
VLLM_API_KEY=EMPTY AUTH_TOKEN=required URL=https://example.com:8443/a@b PAD_TOKEN=<|endoftext|>
API_KEY=${API_KEY_FROM_FILE} QUEUE=sqs://us-east-1/123456789012 DIGEST=sha256:0000000000000000000000000000
"""


@pytest.mark.parametrize("variable", USUAL.split())
def test_usual_values_are_no_keys(variable: str) -> None:
    name, _, value = variable.partition("=")
    assert not looks_like_a_key(name, value)
