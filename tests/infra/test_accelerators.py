"""The catalogue agrees with EC2: with the names in botocore and with what DescribeInstanceTypes says."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import botocore.session
import moto.ec2
import pytest

from infra.catalogue import accelerators, cpu_types, price_tables
from infra.catalogue.on_demand_prices import price, replacement_prices
from infra.program.entries.training import agent_config


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
        ("p2.8xlarge", "'p2.8xlarge' is not supported: AWS has retired P2"),
        ("p3.2xlarge", "'p3.2xlarge' is not supported: AWS retired P3 in December 2025; use g5, g6 or p4d"),
        ("g3s.xlarge", "'g3s.xlarge' is not supported: AWS retired G3 in October 2025; use g4dn or g6"),
        ("f1.2xlarge", "'f1.2xlarge' is not supported: AWS retired F1 in December 2025; use f2"),
        ("p6e-gb200.36xlarge", "'p6e-gb200.36xlarge' is not supported: P6e is sold as Capacity Blocks"),
        ("g7e.xlarge", "'g7e.xlarge' is not a known accelerator type; use g7e.2xlarge, g7e.4xlarge"),
        ("m5.large", "'m5.large' is not a known accelerator type; use "),
        ("h100", "'h100' is not a known accelerator type; use sizes of p3dn, p4d"),
    ],
)
def test_an_unusable_type_says_what_is_allowed(name: str, text: str) -> None:
    with pytest.raises(ValueError, match=r"^'") as caught:
        accelerators.lookup(name)
    assert str(caught.value).startswith(text)


@pytest.mark.parametrize("name", ["p3dn.24xlarge", "g4ad.xlarge", "trn1.2xlarge", "f2.6xlarge", "g6f.large"])
def test_what_awss_image_does_not_boot_needs_an_explicit_one(name: str) -> None:
    with pytest.raises(ValueError, match="set 'ami' or 'amis'"):
        accelerators.check_mix([name], ami=None)
    accelerators.check_mix([name], ami="ami-0123456789abcdef0")


def test_vendors_do_not_mix_even_under_one_image() -> None:
    with pytest.raises(ValueError, match="one vendor and one architecture"):
        accelerators.check_mix(["g4ad.xlarge", "g4dn.xlarge"], ami="ami-0123456789abcdef0")


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
    with pytest.raises(ValueError, match=r"is not a supported CPU type; use .*m7i\.xlarge"):
        cpu_types.architecture(name)


TYPES = ("g5.2xlarge", "g5.xlarge", "p5e.48xlarge")


@pytest.mark.parametrize(("in_order", "dollars"), [(True, 1.212), (False, 1.006)])
def test_the_fallback_buys_its_first_choice_or_the_cheapest(in_order: bool, dollars: float) -> None:
    assert replacement_prices(TYPES, "us-west-2", {}, in_order=in_order) == dict.fromkeys(TYPES, dollars)


def test_an_instance_stands_for_as_many_as_it_weighs() -> None:
    weights = {"g5.12xlarge": 4, "g5.xlarge": 1}
    found = replacement_prices(list(weights), "us-east-1", weights, in_order=True)
    assert found == {"g5.12xlarge": 5.672, "g5.xlarge": 1.418}


@pytest.mark.parametrize(
    ("types", "region"), [(("p5e.48xlarge", "g5.xlarge"), "us-west-2"), (TYPES, "ap-east-2")]
)
def test_an_unknown_price_is_none(types: tuple[str, ...], region: str) -> None:
    assert replacement_prices(types, region, {}, in_order=True) == {}


@pytest.mark.parametrize("table", price_tables.at_hand(), ids=lambda table: f"{table.region}-{table.date}")
def test_the_lowest_price_of_a_family_rises_with_its_gpus(table: price_tables.PriceTable) -> None:
    least: dict[tuple[str, int], float] = {}
    for name in table.usd.keys() & accelerators.CATALOGUE.keys():
        known = accelerators.CATALOGUE[name]
        size = (known.family.name, known.accelerators)
        usd = price(name, table.region)
        assert usd is not None
        least[size] = min(usd, least.get(size, usd))
    in_order = [(family, usd) for (family, _), usd in sorted(least.items())]
    assert in_order == sorted(in_order)


@pytest.mark.parametrize(("region", "is_assumed"), [("us-east-2", False), ("us-west-2", True)])
def test_writing_to_efs_where_its_price_is_unknown_costs_the_highest_price(
    region: str, is_assumed: bool
) -> None:
    capacity = SimpleNamespace(types=())
    job: Any = SimpleNamespace(capacity=capacity, fallback_capacity=capacity)
    prices = agent_config._prices(job, region)
    assert prices.efs_write == price_tables.highest(price_tables.EFS_WRITE)
    assert prices.efs_write_is_assumed == is_assumed
