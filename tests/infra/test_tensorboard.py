"""TensorBoard: a launch template for a read-only instance without inbound access."""

from __future__ import annotations

import base64
import json
import re
from typing import Any

import pytest

from contracts import names
from tests.infra.declared import Run, edited_stack, shipped
from tests.infra.test_refusals import settings
from userdata.tensorboard import LOCK, render

KEY = "gpu-spot:tensorboard"


@pytest.fixture(scope="module")
def known() -> Run:
    return edited_stack({KEY: {"accessPoint": "checkpoints"}, "network.egress": "nat-gateway"}, "prod")


def test_no_running_instance_is_declared(known: Run) -> None:
    plain = shipped("prod")
    more = {kind for kind, name in set(known.identities()) - set(plain.identities()) if "tensorboard" in name}
    assert more == {
        "gpu-spot:infra:TensorBoard",
        "aws:iam/role:Role",
        "aws:iam/rolePolicy:RolePolicy",
        "aws:iam/instanceProfile:InstanceProfile",
        "aws:ec2/launchTemplate:LaunchTemplate",
    }


def test_it_may_read_its_access_point_only(known: Run) -> None:
    statements = known.policy("tensorboard")["Statement"]
    session, files = statements
    assert {action.partition(":")[0] for action in session["Action"]} == {"ssm", "ssmmessages"}
    assert files["Action"] == ["elasticfilesystem:ClientMount"]
    assert files["Condition"]["StringEquals"] == {
        "elasticfilesystem:AccessPointArn": ["arn:gpu-spot-prod-files-checkpoints"]
    }


def test_it_has_no_inbound_access_and_leaves_nothing(known: Run) -> None:
    template = known.the("LaunchTemplate", "tensorboard")
    assert template["instanceInitiatedShutdownBehavior"] == "terminate"
    [interface] = template["networkInterfaces"]
    assert interface["associatePublicIpAddress"] == "false"
    # The workers' security group allows no inbound traffic.
    assert not [
        rule for rule in known.of("SecurityGroupIngressRule").values() if rule.get("fromPort") == 6006
    ]
    assert template["metadataOptions"]["httpTokens"] == "required"
    [tags] = [one["tags"] for one in template["tagSpecifications"] if one["resourceType"] == "instance"]
    assert tags["Name"] == names.tensorboard("prod")
    # It is in no group: no controller counts it.
    assert names.TAG_GROUP not in tags
    boot = base64.b64decode(template["userData"]).decode()
    assert boot == render("fs-0a1b2c", "fsap-0a1b2c")


def test_without_a_way_out_a_preview_warns() -> None:
    of = settings("prod", {KEY: {"accessPoint": "checkpoints"}})
    assert [
        line for line in of.warnings() if line.startswith("gpu-spot:tensorboard: with network.egress 'none'")
    ]


def test_no_group_has_its_name() -> None:
    name = shipped("prod").the("LaunchTemplate", "inference-primary")["tags"]["Name"]
    assert name.removeprefix(f"{names.tensorboard('prod').rpartition('-')[0]}-") == "inference-primary"


def boot_data() -> dict[str, Any]:
    first, _, body = render("fs-1", "fsap-1").partition("\n")
    assert first == "#cloud-config"
    config: dict[str, Any] = json.loads(body)
    return config


def test_the_boot_data_fits_and_pins_what_it_installs() -> None:
    assert len(render("fs-" + "0" * 17, "fsap-" + "0" * 17).encode()) <= 16_384
    pins = re.findall(r"^([a-z0-9-]+)==\S+ \\$", LOCK.read_text(), re.M)
    assert "tensorboard" in pins
    assert len(re.findall(r"--hash=sha256:[0-9a-f]{64}", LOCK.read_text())) >= len(pins)
    [install] = [line for line in boot_data()["runcmd"] if " pip install " in line]
    assert "--require-hashes" in install
    assert "--only-binary=:all:" in install


def test_session_manager_starts_last_and_in_any_case() -> None:
    config = boot_data()
    assert config["bootcmd"] == ["systemctl mask --now amazon-ssm-agent"]
    assert config["runcmd"][-2:] == ["systemctl unmask amazon-ssm-agent", "systemctl start amazon-ssm-agent"]


def test_its_files_are_mounted_read_only_and_its_page_is_on_the_loopback() -> None:
    files = {one["path"]: one["content"] for one in boot_data()["write_files"]}
    mount = files["/etc/systemd/system/logs.mount"]
    assert "Options=ro,tls,iam,accesspoint=fsap-1," in mount
    service = files["/etc/systemd/system/tensorboard.service"]
    assert "--host 127.0.0.1 --port 6006" in service
    assert "RequiresMountsFor=/logs" in service
    assert "IPAddressDeny=any" in service
