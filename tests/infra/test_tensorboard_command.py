"""``gpu-spot tensorboard``: one instance for all who look, reached by Session Manager alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
import yaml

from contracts import names
from gpu_spot.cli import main
from gpu_spot.commands.tensorboard import forwarding, running, stop, wait
from gpu_spot.declared.stackfile import folder_of_stacks
from gpu_spot.errors import ExitStatus
from tests.models import moto
from tests.test_repository import ROOT

REGION = "us-west-2"


@pytest.fixture
def ec2() -> Iterator[Any]:
    with moto():
        yield boto3.client("ec2", region_name=REGION)


def template(ec2: Any, stack: str) -> None:
    tags = {names.TAG_STACK: stack, "Name": names.tensorboard(stack)}
    listed = [{"Key": key, "Value": value} for key, value in tags.items()]
    image = ec2.describe_images(Owners=["amazon"])["Images"][0]["ImageId"]
    ec2.create_launch_template(
        LaunchTemplateName=names.tensorboard(stack),
        LaunchTemplateData={
            "ImageId": image,
            "InstanceType": "t4g.small",
            "TagSpecifications": [{"ResourceType": "instance", "Tags": listed}],
        },
        TagSpecifications=[{"ResourceType": "launch-template", "Tags": listed}],
    )


def test_it_is_started_once_and_found_again(ec2: Any) -> None:
    for stack in ("dev", "prod"):
        template(ec2, stack)
    first, is_new = running(ec2, "dev")
    assert is_new
    assert running(ec2, "dev") == (first, False)
    other, is_new = running(ec2, "prod")
    assert is_new
    assert other != first
    assert stop(ec2, "dev") == [first]
    assert stop(ec2, "dev") == []
    assert running(ec2, "prod") == (other, False)


def test_a_stack_without_it_says_so(ec2: Any) -> None:
    with pytest.raises(ValueError, match="stack 'dev' has no TensorBoard instance"):
        running(ec2, "dev")


class Ssm:
    """Session Manager, which knows an instance after some questions."""

    def __init__(self, after: int) -> None:
        self.left = after

    def describe_instance_information(self, **asked: Any) -> dict[str, Any]:
        assert asked["Filters"] == [{"Key": "InstanceIds", "Values": ["i-1"]}]
        self.left -= 1
        known = [{"PingStatus": "ConnectionLost"}] if self.left == 0 else []
        return {"InstanceInformationList": [{"PingStatus": "Online"}] if self.left < 0 else known}


def test_it_is_waited_for_but_not_for_ever() -> None:
    slept: list[float] = []
    wait(Ssm(3), "i-1", slept.append)  # type: ignore[arg-type]
    assert slept == [5.0] * 3
    with pytest.raises(ValueError, match="i-1 is not online in Session Manager after 10 minutes"):
        wait(Ssm(1000), "i-1", slept.append)  # type: ignore[arg-type]


def test_the_port_is_forwarded_by_awss_own_document() -> None:
    assert forwarding("i-1", REGION, 7007) == [
        *("aws", "ssm", "start-session", "--region", REGION, "--target", "i-1"),
        *("--document-name", "AWS-StartPortForwardingSession"),
        *("--parameters", "portNumber=6006,localPortNumber=7007"),
    ]
    assert forwarding("i-1", REGION, 7007, "lab")[-2:] == ["--profile", "lab"]


@pytest.mark.parametrize(
    "command", ["pin-images", "tensorboard --stop", "forecast --account --head Pulumi.dev.yaml"]
)
@pytest.mark.parametrize("option", [(), ("--profile", "typed")])
def test_the_profile_is_the_typed_one_or_the_stacks(
    command: str, option: tuple[str, ...], tmp_path: Path, monkeypatch: Any, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "Pulumi.yaml").write_text("{name: gpu-spot, runtime: python}\n")
    document = yaml.safe_load((folder_of_stacks(ROOT) / "Pulumi.dev.yaml").read_text("utf-8"))
    document["config"]["aws:profile"] = "stacks"
    (tmp_path / "Pulumi.dev.yaml").write_text(yaml.safe_dump(document))
    assert main([*command.split(), *option]) == ExitStatus.AWS
    assert f"The config profile ({option[-1] if option else 'stacks'})" in capsys.readouterr().err
