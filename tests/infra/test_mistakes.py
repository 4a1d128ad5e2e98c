"""Forty mistakes that people make in a stack file: each is one precise line, and none passes in silence."""

from __future__ import annotations

from pathlib import Path

import botocore.session
import pytest
import yaml

from gpu_spot.declared.stackfile import UserError, load
from gpu_spot.preflight.stack import settings_of
from infra.catalogue.regions import REGIONS
from tests.infra.declared import ROOT

HEAD = """config:
  aws:region: {region}
  gpu-spot:network: {{cidr: 10.20.0.0/16, zones: [{region}a, {region}b]}}
"""
JOB = """  gpu-spot:training:
    - name: a
      command: [train]
      repository: https://example.com/a
      revision: 0123456789abcdef0123456789abcdef01234567
      capacity: {kind: mixed-asg, target: 1, instanceTypes: [g5.xlarge]}
"""
MISTAKES = yaml.safe_load(Path(__file__).with_name("mistakes.yaml").read_text("utf-8"))


def check(text: str, folder: Path) -> list[str]:
    """The lines that a person sees before anything is created."""
    path = folder / "Pulumi.mistake.yaml"
    path.write_text(text)
    try:
        settings = settings_of(load(ROOT, "mistake", file=path))
    except UserError as error:
        return str(error).splitlines()
    return list(settings.warnings())


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_a_precise_line(mistake: str, tmp_path: Path) -> None:
    case = MISTAKES[mistake]
    [line] = check(HEAD.format(region=case.get("region", "us-west-2")) + case["text"], tmp_path)
    assert case["said"] in line


def test_there_are_forty() -> None:
    assert len(MISTAKES) >= 40


def test_the_regions_are_those_of_aws() -> None:
    session = botocore.session.get_session()
    parts = session.get_available_partitions()
    assert {name for part in parts for name in session.get_available_regions("ec2", part)} == REGIONS


def test_a_stack_of_jobs_needs_no_services(tmp_path: Path) -> None:
    assert check(HEAD.format(region="us-west-2") + JOB, tmp_path) == []
