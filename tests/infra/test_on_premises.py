"""Workers on premises: their resources and their configuration."""

from __future__ import annotations

import json
import re
from typing import Any

import yaml

from contracts import codec
from contracts.agent import config as agent
from contracts.group import config as group_config
from infra.settings import load_settings
from tests.infra.declared import ROOT, Run, edited_stack, in_service
from tests.infra.training import EXISTING

ACCOUNT = "123456789012"
ANCHOR = f"arn:aws:rolesanywhere:us-west-2:{ACCOUNT}:trust-anchor/0a1b2c3d-0000-0000-0000-000000000000"
OPS = f"arn:aws:iam::{ACCOUNT}:role/ops"
KEY = f"arn:aws:kms:us-west-2:{ACCOUNT}:key/00000000-0000-0000-0000-000000000000"
HOST = {"name": "gpu-1", "gpus": 1}
IMAGE = f"{ACCOUNT}.dkr.ecr.us-west-2.amazonaws.com/ocr@sha256:{'0' * 64}"


def stack(hosts: dict[str, Any], settings: dict[str, Any] | None = None, **more: Any) -> Run:
    service = in_service(command=["serve"], queue=EXISTING, onPremises=hosts, **more)
    return edited_stack({**service, **(settings or {})})


def test_each_host_has_a_policy_for_its_own_items() -> None:
    known = stack({"hosts": [HOST, {"name": "gpu-2", "gpus": 8}]})
    for host in ("gpu-1", "gpu-2"):
        policy = json.loads(known.the("Policy", f"inference-host-{host}")["policy"])
        granted = {one["Sid"]: one for one in policy["Statement"]}
        assert granted.keys() == {"ReportWorkers", "OpenQueue"}
        keys = granted["ReportWorkers"]["Condition"]["ForAllValues:StringEquals"]["dynamodb:LeadingKeys"]
        assert keys == [f"inference@on-premises#{host}"]
    for kind in ("Role", "RolePolicyAttachment"):
        assert [name for name in known.of(kind) if "host" in name] == []


def test_the_functions_know_the_hosts_and_their_slots() -> None:
    known = stack({"hosts": [HOST, {"name": "gpu-2", "gpus": 8}]}, slotsPerGpu=2)
    text = known.the("Parameter", "inference-config")["insecureValue"]
    assert group_config.parse(text).on_premises_hosts == {"gpu-1": 2, "gpu-2": 16}


def test_a_long_host_name_is_shortened_in_the_name_of_its_role() -> None:
    known = stack({"hosts": [{"name": "g" * 63, "gpus": 1}], "trustAnchor": ANCHOR})
    [name] = [name for name in known.of("Role") if "host" in name]
    assert re.fullmatch("inference-host-[0-9a-f]{6}", name)


def test_an_image_in_ecr_may_be_pulled_and_a_key_be_used() -> None:
    known = stack({"hosts": [HOST]}, {"gpu-spot:kmsKeyArn": KEY}, image=IMAGE)
    policy = json.loads(known.the("Policy", "inference-host-gpu-1")["policy"])
    granted = {one["Sid"]: one for one in policy["Statement"]}
    assert granted.keys() == {"ReportWorkers", "OpenQueue", "LogInToRegistry", "PullImages", "UseKey"}
    assert granted["UseKey"]["Condition"] == {
        "StringLike": {"kms:ViaService": [f"{name}.us-west-2.*" for name in ("dynamodb", "secretsmanager")]}
    }


def test_hosts_take_the_role_by_certificate_and_people_by_name() -> None:
    host = {**HOST, "principals": [OPS]}
    known = stack({"trustAnchor": ANCHOR, "organizationalUnit": "GPU hosts", "hosts": [host]})
    trust = json.loads(known.the("Role", "inference-host-gpu-1")["assumeRolePolicy"])
    by_certificate, by_name = trust["Statement"]
    assert by_certificate["Principal"] == {"Service": "rolesanywhere.amazonaws.com"}
    assert set(by_certificate["Action"]) == {"sts:AssumeRole", "sts:SetSourceIdentity", "sts:TagSession"}
    assert by_certificate["Condition"] == {
        "ArnEquals": {"aws:SourceArn": ANCHOR},
        "StringEquals": {
            "aws:PrincipalTag/x509Subject/CN": "gpu-1",
            "aws:PrincipalTag/x509Subject/OU": "GPU hosts",
        },
    }
    assert (by_name["Principal"], by_name["Action"]) == ({"AWS": [OPS]}, ["sts:AssumeRole"])
    attached = known.the("RolePolicyAttachment", "inference-host-gpu-1")
    assert "host-gpu-1" in attached["policyArn"]


def test_hosts_get_the_agents_configuration() -> None:
    known = stack({"hosts": [HOST]}, image=IMAGE, slotsPerGpu=2, reportsReadiness=True)
    exported = known.exports["onPremises"]["inference"]
    config = agent.parse(exported["agent"])
    assert (config.group, config.on_premises, config.hooks) == ("inference", True, None)
    instances = codec.parse(agent.Config, known.agent("inference-primary"))
    assert (config.service, config.registry_table) == (instances.service, instances.registry_table)
    assert exported["archive"].startswith("s3://")
    assert exported["archive"].endswith(".zip")


def test_no_stack_that_ships_opens_its_registry_to_others() -> None:
    for path in (ROOT / "stacks").glob("Pulumi.*.yaml"):
        for service in load_settings(yaml.safe_load(path.read_text())["config"]).services:
            if (premises := service.on_premises) is not None:
                named = {premises.trust_anchor, *(host.principals for host in premises.hosts)}
                assert named == {None, ()}, f"{path.name}: {service.name}"
