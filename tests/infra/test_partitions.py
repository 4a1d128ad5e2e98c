"""Outside the commercial partition: no ARN of it, and no host name of it without a reason."""

from __future__ import annotations

import base64
import json
import re
from itertools import cycle
from typing import Any
from unittest.mock import Mock

import pytest
import yaml
from botocore.session import get_session

from contracts.partitions import DNS_SUFFIXES, reversed_dns
from infra.program.entries.needs import repositories
from infra.settings import SettingsError, load_settings
from lambdas.core.queues import management_api
from tests.infra.declared import ROOT, Run, edited_stack
from tests.soak import sample
from userdata.agent.work import containers

KEY = "00000000-0000-0000-0000-000000000000"
SAMPLES = "us-west-2"
STACKS = tuple(sorted(path.name.split(".")[1] for path in (ROOT / "stacks").glob("Pulumi.*.yaml")))
REGIONS = {
    **{"aws-cn": "cn-north-1", "aws-us-gov": "us-gov-west-1", "aws-eusc": "eusc-de-east-1"},
    **{"aws-iso": "us-iso-east-1", "aws-iso-b": "us-isob-east-1"},
    **{"aws-iso-e": "eu-isoe-west-1", "aws-iso-f": "us-isof-south-1"},
}
UNIVERSAL = {
    # service principals, the same everywhere (aws-cdk's region-info: "globally `<SERVICE>.amazonaws.com`")
    *("ec2", "lambda", "events", "cloudwatch", "spotfleet", "vpc-flow-logs", "budgets"),
    *("eks", "pods.eks", "rolesanywhere", "fis", "scheduler", "logdelivery.elasticloadbalancing"),
    # the audience that both sides of GitHub's sign-in name; any text would do
    "sts",
}
IN_CHINA_TOO = "ec2.amazonaws.com.cn"
"""Beside the universal principal in a condition of Karpenter's role."""


def in_partition(stack: str, partition: str) -> Run:
    region, suffix = REGIONS[partition], DNS_SUFFIXES[partition]

    def change(config: dict[str, Any]) -> None:
        text = json.dumps(config).replace("amazonaws.com", suffix)
        config |= json.loads(text.replace(SAMPLES, region).replace("arn:aws:", f"arn:{partition}:"))
        config["gpu-spot:network"] |= {"endpoints": "interface", "flowLogs": "all"}
        config["gpu-spot:kmsKeyArn"] = f"arn:{partition}:kms:{region}:123456789012:key/{KEY}"
        config["gpu-spot:identity"] = {
            "previews": {"repository": "o@1/r@2", "stateBucket": "state"},
            "deploys": {"policies": [f"arn:{partition}:iam::123456789012:policy/deploys"]},
        }
        config.get("gpu-spot:monitoring", {}).pop("monthlyBudgetUsd", None)

    return edited_stack(change, stack)


def texts(stack: Run) -> str:
    """All that the program declares and exports, boot data decoded."""
    templates = [one for one in stack.of("LaunchTemplate").values() if "userData" in one]  # EKS makes its own
    boot = [base64.b64decode(one["userData"]).decode() for one in templates]
    return json.dumps([stack.declared, stack.exports, boot])


def test_there_is_no_budget_where_there_are_no_budgets() -> None:
    prod = yaml.safe_load((ROOT / "stacks" / "Pulumi.prod.yaml").read_text("utf-8"))["config"]
    zones = ["us-gov-west-1a"]
    raw = {
        **prod,
        "aws:region": "us-gov-west-1",
        "gpu-spot:network": {**prod["gpu-spot:network"], "zones": zones},
    }
    with pytest.raises(
        SettingsError, match=r"^gpu-spot:monitoring\.monthlyBudgetUsd is 12000, but .* in us-gov-west-1; "
    ):
        load_settings(raw)


@pytest.mark.parametrize(("stack", "partition"), sample(zip(STACKS, cycle(REGIONS), strict=False), 3))
def test_nothing_is_of_the_commercial_partition(stack: str, partition: str) -> None:
    declared = in_partition(stack, partition)
    text = texts(declared)
    assert f"arn:{partition}:" in text
    assert not re.findall(r"arn:aws:[^\"\\]*", text)
    assert SAMPLES not in text
    hosts = set(re.findall(r"[\w.*-]+\.amazonaws\.com[\w.*]*", text)) - {IN_CHINA_TOO}
    images = {host for host in hosts if f".dkr.ecr.{REGIONS[partition]}.{DNS_SUFFIXES[partition]}" in host}
    assert hosts - images <= {f"{name}.amazonaws.com" for name in UNIVERSAL}
    prefix = reversed_dns(DNS_SUFFIXES[partition])
    for endpoint in declared.of("VpcEndpoint").values():
        if endpoint["vpcEndpointType"] == "Interface":
            assert endpoint["serviceName"].startswith(f"{prefix}.{REGIONS[partition]}.")


def test_the_domains_are_botocores() -> None:
    partitions = get_session().get_data("partitions")["partitions"]
    assert {entry["id"]: entry["outputs"]["dnsSuffix"] for entry in partitions} == DNS_SUFFIXES
    assert {get_session().get_partition_for_region(region) for region in REGIONS.values()} == set(REGIONS)
    assert DNS_SUFFIXES.keys() - REGIONS.keys() == {"aws"}


@pytest.mark.parametrize("partition", DNS_SUFFIXES)
def test_a_repository_of_every_partition_is_one(partition: str) -> None:
    region = REGIONS.get(partition, SAMPLES)
    domain = DNS_SUFFIXES[partition]
    dual_stack = {"amazonaws.com.cn": "on.amazonwebservices.com.cn"}.get(domain, "on.aws")
    hosts = f"dkr.ecr.{region}.{domain}", f"dkr.ecr-fips.{region}.{domain}", f"dkr-ecr.{region}.{dual_stack}"
    scope = Mock(image_repository_arn=lambda *parts: "/".join(parts))
    for host in (f"123456789012.{host}" for host in hosts):
        image, machine = f"{host}/team/ocr@sha256:0", Mock()
        assert repositories([image], scope) == (f"123456789012/{region}/team/ocr",)
        containers.log_in(machine, image, "password of {}".format)
        assert machine.run.call_args.args[0][-1] == host
        assert machine.run.call_args.kwargs == {"stdin": f"password of {region}"}
        machine, image = Mock(), f"{host}.evil.example/ocr@sha256:0"
        assert repositories([image], scope) == ()
        containers.log_in(machine, image, str)
        assert not machine.run.called


@pytest.mark.parametrize("partition", DNS_SUFFIXES)
def test_the_management_api_of_a_broker_of_every_partition_has_port_443(partition: str) -> None:
    host = f"b-1.mq.{REGIONS.get(partition, SAMPLES)}.{DNS_SUFFIXES[partition]}"
    assert management_api.from_broker_url(f"amqps://u:p@{host}:5671").port == 443


def test_code_names_no_domain_or_partition_of_its_own() -> None:
    """Principals and patterns for all partitions apart, and names that never reach AWS."""
    free = ("contracts/partitions.py", "catalogue/", "declared/listing.py")
    found = {}
    for folder in (
        "contracts",
        "infra",
        "lambdas",
        "userdata",
        "gpu_spot",
        "packages/spot-work/src",
        "packages/spot-training/src",
    ):
        for path in sorted((ROOT / folder).rglob("*")):
            name = str(path.relative_to(ROOT))
            if path.suffix in (".py", ".sh", ".service") and not any(part in name for part in free):
                text = path.read_text("utf-8")
                hosts = set(re.findall(r"[\w.-]*\.amazonaws\.com[\w.]*", text)) - {IN_CHINA_TOO}
                found[name] = [
                    *sorted(hosts - {f"{service}.amazonaws.com" for service in (*UNIVERSAL, "spot")}),
                    *re.findall(r"arn:aws:\S*", text),
                ]
    assert {name: values for name, values in found.items() if values} == {}
