"""Workers on premises: their resources and their configuration."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from contracts import codec
from contracts.agent import config as agent
from infra.schema.services.on_premises import OnPremises
from infra.settings import SettingsError, load_settings
from tests.infra.declared import ROOT, Run, run, variant
from tests.infra.queues import EXISTING

ACCOUNT = "123456789012"
ANCHOR = f"arn:aws:rolesanywhere:us-west-2:{ACCOUNT}:trust-anchor/0a1b2c3d-0000-0000-0000-000000000000"
OPS = f"arn:aws:iam::{ACCOUNT}:role/ops"
KEY = f"arn:aws:kms:us-west-2:{ACCOUNT}:key/00000000-0000-0000-0000-000000000000"
IMAGE = f"{ACCOUNT}.dkr.ecr.us-west-2.amazonaws.com/ocr@sha256:{'0' * 64}"
DATASET = {"snapshot": "snap-0123456789abcdef0", "path": "/data/a"}


def stack(folder: Path, hosts: dict[str, Any], settings: dict[str, Any] | None = None, **more: Any) -> Run:
    def change(config: dict[str, Any]) -> None:
        config["gpu-spot:services"][0] |= {
            "command": ["serve"],
            "queue": EXISTING,
            "onPremises": hosts,
            **more,
        }
        config |= settings or {}

    return run("known", variant(folder, change), "dev")


def test_without_a_name_there_is_an_unattached_policy(tmp_path: Path) -> None:
    known = stack(tmp_path, {})
    policy = json.loads(known.the("Policy", "inference-on-premises")["policy"])
    assert {one["Sid"] for one in policy["Statement"]} == {"ReportWorkers", "OpenQueue"}
    for kind in ("Role", "RolePolicyAttachment"):
        assert [name for name in known.of(kind) if "on-premises" in name] == []


def test_an_image_in_ecr_may_be_pulled_and_a_key_be_used(tmp_path: Path) -> None:
    known = stack(tmp_path, {}, {"gpu-spot:kmsKeyArn": KEY}, image=IMAGE)
    policy = json.loads(known.the("Policy", "inference-on-premises")["policy"])
    granted = {one["Sid"]: one for one in policy["Statement"]}
    assert granted.keys() == {"ReportWorkers", "OpenQueue", "LogInToRegistry", "PullImages", "UseKey"}
    assert granted["UseKey"]["Condition"] == {
        "StringLike": {
            "kms:ViaService": [f"{name}.us-west-2.amazonaws.com*" for name in ("dynamodb", "secretsmanager")]
        }
    }


def test_hosts_take_the_role_by_certificate_and_people_by_name(tmp_path: Path) -> None:
    hosts = {"trustAnchor": ANCHOR, "organizationalUnit": "GPU hosts", "principals": [OPS]}
    known = stack(tmp_path, hosts)
    trust = json.loads(known.the("Role", "inference-on-premises")["assumeRolePolicy"])
    by_certificate, by_name = trust["Statement"]
    assert by_certificate["Principal"] == {"Service": "rolesanywhere.amazonaws.com"}
    assert set(by_certificate["Action"]) == {"sts:AssumeRole", "sts:SetSourceIdentity", "sts:TagSession"}
    assert by_certificate["Condition"] == {
        "ArnEquals": {"aws:SourceArn": ANCHOR},
        "StringEquals": {"aws:PrincipalTag/x509Subject/OU": "GPU hosts"},
    }
    assert (by_name["Principal"], by_name["Action"]) == ({"AWS": [OPS]}, ["sts:AssumeRole"])
    attached = known.the("RolePolicyAttachment", "inference-on-premises")
    assert "on-premises" in attached["policyArn"]


def test_hosts_get_the_agents_configuration(tmp_path: Path) -> None:
    known = stack(tmp_path, {}, image=IMAGE, slotsPerGpu=2, reportsReadiness=True)
    exported = known.exports["onPremises"]["inference"]
    config = agent.parse(exported["agent"])
    assert (config.group, config.on_premises, config.hooks) == ("inference", True, None)
    instances = codec.parse(agent.Config, known.agent("inference-primary"))
    assert (config.service, config.registry_table) == (instances.service, instances.registry_table)
    assert exported["archive"].startswith("s3://")
    assert exported["archive"].endswith(".zip")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"onPremises": {}}, "onPremises: .*without an image or a command"),
        ({"command": ["a"], "onPremises": {}, "datasets": [DATASET]}, "onPremises: .*with datasets"),
        (
            {"command": ["a"], "onPremises": {"organizationalUnit": "a"}},
            "organizationalUnit: .*'a' without trustAnchor, allowed: with trustAnchor",
        ),
        ({"command": ["a"], "onPremises": {"principals": ["*"]}}, "principals"),
        ({"command": ["a"], "onPremises": {"principals": [f"arn:aws:iam::{ACCOUNT}:root"]}}, "principals"),
    ],
)
def test_unsupported_settings_are_rejected_by_their_key(change: dict[str, Any], says: str) -> None:
    capacity = {"kind": "mixed-asg", "target": 1, "instanceTypes": ["g5.xlarge"]}
    document: dict[str, Any] = {
        "aws:region": "us-west-2",
        "gpu-spot:services": [{"name": "ocr", "capacity": capacity, **change}],
    }
    with pytest.raises(SettingsError, match=says):
        load_settings(document)


def test_no_stack_that_ships_opens_its_registry_to_others() -> None:
    for path in ROOT.glob("Pulumi.*.yaml"):
        for service in load_settings(yaml.safe_load(path.read_text())["config"]).services:
            hosts = service.on_premises or OnPremises()
            assert (hosts.trust_anchor, hosts.principals) == (None, ()), f"{path.name}: {service.name}"
