"""`gpu-spot pin-images`: images change in the file, and nothing else does."""

from __future__ import annotations

import json
from pathlib import Path

import boto3
import pytest
import yaml

from gpu_spot.cli import main
from gpu_spot.commands.pin_images import pin_images
from gpu_spot.errors import ExitStatus
from infra.catalogue.accelerators import ami_parameter
from infra.settings import load_settings
from tests.docs.keys import documented
from tests.infra.declared import ROOT, STACKS
from tests.models import moto

X86, ARM = ami_parameter("x86_64"), ami_parameter("arm64")
NEWEST = {X86: "ami-00000001", ARM: "ami-00000002", "/own/image": "ami-00000003"}
LATER = dict.fromkeys(NEWEST, "ami-0000000f")
HEAD = """\
config:
  # where
  aws:region: us-west-2
  gpu-spot:network: { cidr: 10.20.0.0/16, zones: [us-west-2a] }
  gpu-spot:services:
    - name: serve
      capacity:  # of it
        kind: mixed-asg
        target: 1
"""


def file(*lines: str) -> str:
    return HEAD + "".join(f"        {line}\n" for line in lines)


def test_an_entry_that_merges_another_has_its_image() -> None:
    text = file("instanceTypes: [g5.xlarge]").replace("- name: serve", "- &base\n      name: serve")
    pinned, pins = pin_images(text + "    - <<: *base\n      name: second\n", NEWEST.__getitem__)
    services = yaml.safe_load(pinned)["config"]["gpu-spot:services"]
    assert [service["capacity"]["ami"] for service in services] == ["ami-00000001"] * 2
    assert len(pins) == 1


@pytest.mark.parametrize(
    ("given", "top", "rest"),
    [
        (["instanceTypes: [g5.xlarge]  # cheap"], [f"ami: ami-00000001  # of {X86}"], None),
        (["instanceTypes: [g5g.xlarge]"], [f"ami: ami-00000002  # of {ARM}"], None),
        (
            ["instanceTypes: [g5.xlarge]", "ami: /own/image  # ours"],
            [],
            ["instanceTypes: [g5.xlarge]", "ami: ami-00000003  # of /own/image  # ours"],
        ),
        (
            [f"ami: ami-000000aa # of {X86}", "instanceTypes: [g5.xlarge]"],
            [],
            [f"ami: ami-00000001  # of {X86}", "instanceTypes: [g5.xlarge]"],
        ),
        (
            ["instanceTypes: [g5.xlarge, g6.xlarge]", "amis:", "  g6: ami-000000aa"],
            [f"ami: ami-00000001  # of {X86}"],
            None,
        ),
        (
            ["instanceRequirements: { acceleratorNames: [A10G, L4] }", "amis:", "  g5: ami-000000aa"],
            [],
            [
                "instanceRequirements: { acceleratorNames: [A10G, L4] }",
                "amis:",
                f"  g6: ami-00000001  # of {X86}",
                f"  gr6: ami-00000001  # of {X86}",
                "  g5: ami-000000aa",
            ],
        ),
        (
            ["instanceRequirements: { acceleratorNames: [A10G] }"],
            ["amis:", f"  g5: ami-00000001  # of {X86}"],
            None,
        ),
    ],
)
def test_an_image_id_is_written_with_its_parameter_as_a_comment(
    given: list[str], top: list[str], rest: list[str] | None
) -> None:
    new, [pin] = pin_images(file(*given), NEWEST.__getitem__)
    kind = "        kind: mixed-asg\n"
    above = "".join(f"        {line}\n" for line in top)
    assert new == file(*(rest or given)).replace(kind, above + kind)
    assert " → ami-0000000" in pin.summary
    assert load_settings(yaml.safe_load(new)["config"])
    assert pin_images(new, NEWEST.__getitem__)[0] == new


@pytest.mark.parametrize("stack", STACKS)
def test_the_environments_pin_and_pin_again(stack: str) -> None:
    text = (ROOT / "stacks" / f"Pulumi.{stack}.yaml").read_text("utf-8")
    first, pins = pin_images(text, NEWEST.__getitem__)
    assert pins
    assert [line for line in first.splitlines() if " # of /" not in line] == text.splitlines()
    before, after = (load_settings(yaml.safe_load(one)["config"]) for one in (text, first))
    for name, capacity in after.capacities.items():
        assert capacity.types == before.capacities[name].types
        assert all(image.startswith("ami-") for image in capacity.images)
    again, pins = pin_images(first, LATER.__getitem__)
    assert again == first.replace("ami-00000001", "ami-0000000f").replace("ami-00000002", "ami-0000000f")
    assert all("ami-0000000" in one.summary and "→ ami-0000000f" in one.summary for one in pins)


def test_an_own_image_stays() -> None:
    text = file("instanceTypes: [g5.xlarge]", "ami: ami-000000aa  # ours")
    assert pin_images(text, NEWEST.__getitem__) == (text, [])


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (file("instanceTypes: [g5.huge]"), "capacity.instanceTypes"),
        (
            HEAD[: HEAD.index("  # of it")] + " { kind: mixed-asg, target: 1, instanceTypes: [g5.xlarge] }\n",
            "flow mapping",
        ),
    ],
)
def test_what_cannot_be_pinned_is_one_line(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem) as caught:
        pin_images(text, NEWEST.__getitem__)
    assert len(str(caught.value).splitlines()) == 1


@moto()
def test_the_command_reads_parameters_and_writes_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "none")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "none")
    (tmp_path / "Pulumi.yaml").touch()
    path = tmp_path / "Pulumi.mine.yaml"
    path.write_text(file("instanceTypes: [g5.xlarge]", "ami: /own/image"), "utf-8")
    assert main(["pin-images", "--stack", "mine"]) == ExitStatus.INPUT
    assert "no parameter /own/image in us-west-2" in capsys.readouterr().err
    parameters = boto3.client("ssm", region_name="us-west-2")
    parameters.put_parameter(Name="/own/image", Type="String", Value="none")
    assert main(["pin-images", "--stack", "mine"]) == ExitStatus.INPUT
    assert "must hold an AMI ID, not 'none'" in capsys.readouterr().err
    assert "ami: /own/image\n" in path.read_text("utf-8")
    parameters.put_parameter(Name="/own/image", Type="String", Value="ami-000000cc", Overwrite=True)
    assert main(["pin-images", "--stack", "mine"]) == 0
    assert capsys.readouterr().out == "serve: ami: /own/image → ami-000000cc\n"
    assert "ami: ami-000000cc  # of /own/image\n" in path.read_text("utf-8")
    parameters.put_parameter(Name="/own/image", Type="String", Value="ami-000000dd", Overwrite=True)
    assert main(["pin-images", "--stack", "mine", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    pin = {"group": "serve", "keys": ["ami"], "before": "ami-000000cc", "image": "ami-000000dd"}
    assert report["images"] == [pin | {"parameter": "/own/image"}]
    assert report["changed"]
    assert report.keys() == documented("pin-images")
