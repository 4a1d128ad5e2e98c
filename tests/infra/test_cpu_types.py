"""Which types may prepare a dataset, held to the names that EC2 knows and to what it says of them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import botocore.session
import moto.ec2
import pytest

from infra.catalogue import cpu_types


def readable(names: set[str]) -> dict[str, str]:
    found = {}
    for name in names:
        try:
            found[name] = cpu_types.architecture(name)
        except ValueError:
            continue
    return found


def test_architectures_by_name_are_those_of_ec2() -> None:
    path = Path(moto.ec2.__file__).parent / "resources" / "instance_types.json.gz"
    described: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
    architectures = readable(set(described))
    assert len(architectures) > 200
    for name, architecture in architectures.items():
        says = described[name]
        assert says["ProcessorInfo"]["SupportedArchitectures"] == [architecture], name
        assert "GpuInfo" not in says
        assert says["Hypervisor"] == "nitro", name
        assert says["EbsInfo"]["NvmeSupport"] == "required", name  # else volumes have no serial numbers


def test_young_families_are_read_without_a_list() -> None:
    service = botocore.session.get_session().get_service_model("ec2")
    known = set(service.shape_for("InstanceType").enum)  # type: ignore[attr-defined]
    architectures = readable(known)
    assert {
        "m7i.large",
        "m8g.xlarge",
        "c7i-flex.2xlarge",
        "r7iz.large",
        "t4g.small",
        "m8i.large",
    } <= architectures.keys()
    assert {architectures[name] for name in ("m8g.xlarge", "c7gn.large", "r8gd.large", "t4g.small")} == {
        "arm64"
    }
    assert {architectures[name] for name in ("m7i.large", "c7i-flex.2xlarge", "m5zn.large", "r5b.large")} == {
        "x86_64"
    }


@pytest.mark.parametrize(
    "name", ["g5.xlarge", "m4.large", "t2.medium", "m5.metal", "t3.nano", "i3.large", "m7i", ""]
)
def test_types_with_accelerators_or_without_nitro_are_rejected(name: str) -> None:
    with pytest.raises(ValueError, match=r"is not a supported CPU type, allowed: .*m7i\.xlarge"):
        cpu_types.architecture(name)
