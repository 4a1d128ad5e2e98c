"""Outside the commercial partition: no ARN of it, and no host name of it without a reason."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.settings import SettingsError, load_settings
from tests.infra.declared import ROOT, STACKS, Run, run, variant

KEY = "00000000-0000-0000-0000-000000000000"
REGIONS = {"aws-cn": "cn-north-1", "aws-us-gov": "us-gov-west-1"}
UNIVERSAL = {
    # service principals, the same everywhere (aws-cdk's region-info: "globally `<SERVICE>.amazonaws.com`")
    *("ec2", "lambda", "events", "cloudwatch", "spotfleet", "vpc-flow-logs", "budgets"),
    # the audience that both sides of GitHub's sign-in name; any text would do
    "sts",
}


def in_partition(stack: str, partition: str, tmp_path: Path) -> Run:
    region = REGIONS[partition]

    def change(config: dict[str, Any]) -> None:
        config["aws:region"] = region
        config["gpu-spot:network"]["zones"] = [f"{region}a", f"{region}b"]
        config["gpu-spot:network"]["endpoints"] = "interface"
        config["gpu-spot:network"]["flowLogs"] = "all"
        config["gpu-spot:kmsKeyArn"] = f"arn:{partition}:kms:{region}:123456789012:key/{KEY}"
        config["gpu-spot:identity"] = {"previews": {"repository": "o/r", "stateBucket": "state"}}
        config.get("gpu-spot:monitoring", {}).pop("monthlyBudgetUsd", None)

    return run("known", variant(tmp_path, change, ROOT / f"Pulumi.{stack}.yaml"), stack)


def texts(stack: Run) -> str:
    """All that the program declares and exports, boot data decoded."""
    boot = [base64.b64decode(one["userData"]).decode() for one in stack.of("LaunchTemplate").values()]
    return json.dumps([stack.declared, stack.exports, boot])


def test_there_is_no_budget_where_there_are_no_budgets(tmp_path: Path) -> None:
    prod = yaml.safe_load((ROOT / "Pulumi.prod.yaml").read_text("utf-8"))["config"]
    zones = ["us-gov-west-1a"]
    raw = {
        **prod,
        "aws:region": "us-gov-west-1",
        "gpu-spot:network": {**prod["gpu-spot:network"], "zones": zones},
    }
    with pytest.raises(
        SettingsError, match=r"^gpu-spot:monitoring\.monthlyBudgetUsd: 12000 in us-gov-west-1, "
    ):
        load_settings(raw)


@pytest.mark.parametrize("partition", REGIONS)
@pytest.mark.parametrize("stack", STACKS)
def test_nothing_is_of_the_commercial_partition(stack: str, partition: str, tmp_path: Path) -> None:
    text = texts(in_partition(stack, partition, tmp_path))
    assert f"arn:{partition}:" in text
    assert not re.findall(r"arn:aws:[^\"\\]*", text)
    hosts = set(re.findall(r"[\w.*-]+\.amazonaws\.com[\w.*]*", text))
    through = {
        host for host in hosts if host.endswith(f".{REGIONS[partition]}.amazonaws.com*")
    }  # kms:ViaService
    assert hosts - through <= {f"{name}.amazonaws.com" for name in UNIVERSAL}
