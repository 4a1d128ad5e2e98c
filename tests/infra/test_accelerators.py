"""The catalogue agrees with EC2: with the names in botocore and with what DescribeInstanceTypes says."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import botocore.session
import moto.ec2
import pytest

from infra.catalogue import accelerators


@pytest.fixture(scope="module")
def described() -> dict[str, Any]:
    """EC2's own description of its types, as moto ships it."""
    path = Path(moto.ec2.__file__).parent / "resources" / "instance_types.json.gz"
    types: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
    return types


def test_every_type_exists_in_ec2() -> None:
    service = botocore.session.get_session().get_service_model("ec2")
    known = set(service.shape_for("InstanceType").enum)  # type: ignore[attr-defined]
    assert set(accelerators.CATALOGUE) <= known


def test_counts_and_architectures_are_ec2s(described: dict[str, Any]) -> None:
    checked = 0
    for name, entry in accelerators.CATALOGUE.items():
        if name not in described:
            continue
        says = described[name]
        assert says["ProcessorInfo"]["SupportedArchitectures"] == [entry.family.architecture], name
        devices = [
            *says.get("GpuInfo", {}).get("Gpus", ()),
            *says.get("NeuronInfo", {}).get("NeuronDevices", ()),
            *says.get("FpgaInfo", {}).get("Fpgas", ()),
        ]
        # A share of a GPU is reported as 0 of them.
        assert sum(max(1, device["Count"]) for device in devices) == entry.accelerators, name
        checked += 1
    assert checked > 60


def test_no_current_gpu_type_is_missing(described: dict[str, Any]) -> None:
    gpus = {name for name, says in described.items() if says.get("GpuInfo")}
    assert gpus <= set(accelerators.CATALOGUE)


def test_ec2_describes_no_type_of_a_retired_family(described: dict[str, Any]) -> None:
    retired = {family for family, reason in accelerators._UNSUPPORTED.items() if "retired" in reason}
    assert retired == {"p2", "p3", "g2", "g3", "g3s", "f1"}
    assert not retired & {name.partition(".")[0] for name in described}


def test_every_type_is_offered_on_spot(described: dict[str, Any]) -> None:
    for name in set(accelerators.CATALOGUE) & set(described):
        assert "spot" in described[name]["SupportedUsageClasses"], name


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("p2.8xlarge", "'p2.8xlarge' cannot be used: AWS has retired P2"),
        ("p3.2xlarge", "'p3.2xlarge' cannot be used: AWS retired P3 in December 2025; use g5, g6 or p4d"),
        ("g3s.xlarge", "'g3s.xlarge' cannot be used: AWS retired G3 in October 2025; use g4dn or g6"),
        ("f1.2xlarge", "'f1.2xlarge' cannot be used: AWS retired F1 in December 2025; use f2"),
        ("p6e-gb200.36xlarge", "'p6e-gb200.36xlarge' cannot be used: P6e is sold as Capacity Blocks"),
        ("g7e.xlarge", "'g7e.xlarge' is not a known accelerator type, allowed: g7e.2xlarge, g7e.4xlarge"),
        ("m5.large", "'m5.large' is not a known accelerator type, allowed: "),
        ("h100", "'h100' is not a known accelerator type, allowed: sizes of p3dn, p4d"),
    ],
)
def test_an_unusable_type_says_what_is_allowed(name: str, text: str) -> None:
    with pytest.raises(ValueError, match=r"^'") as caught:
        accelerators.lookup(name)
    assert str(caught.value).startswith(text)


@pytest.mark.parametrize("name", ["p3dn.24xlarge", "g4ad.xlarge", "trn1.2xlarge", "f2.6xlarge", "g6f.large"])
def test_what_awss_image_does_not_boot_needs_an_explicit_one(name: str) -> None:
    with pytest.raises(ValueError, match="without 'ami'"):
        accelerators.check_mix([name], ami=None)
    accelerators.check_mix([name], ami="ami-0123456789abcdef0")


def test_vendors_do_not_mix_even_under_one_image() -> None:
    with pytest.raises(ValueError, match="one vendor and one architecture"):
        accelerators.check_mix(["g4ad.xlarge", "g4dn.xlarge"], ami="ami-0123456789abcdef0")
