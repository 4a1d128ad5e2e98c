"""A wrong key or value is named with its full path, what was given, and what is allowed."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pulumi
import pytest
import yaml

from infra.schema import Settings
from infra.settings import SettingsError, load_settings

ROOT = Path(__file__).resolve().parents[2]
DEV: dict[str, Any] = yaml.safe_load((ROOT / "Pulumi.dev.yaml").read_text("utf-8"))["config"]
CAPACITY = "gpu-spot:services/0/capacity"


def changed(path: str, value: Any) -> dict[str, Any]:
    """Return the dev configuration with ``value`` at a slash-separated path (None removes the key)."""
    raw = copy.deepcopy(DEV)
    *parents, last = path.split("/")
    here: Any = raw
    for part in parents:
        here = here[int(part)] if isinstance(here, list) else here.setdefault(part, {})
    if value is None:
        del here[last]
    else:
        here[last] = value
    return raw


def message(path: str, value: Any) -> str:
    with pytest.raises(SettingsError) as caught:
        load_settings(changed(path, value))
    return str(caught.value)


def test_the_dev_stack_is_valid() -> None:
    settings = load_settings(DEV)
    capacity = settings.services[0].capacity
    assert (capacity.target, capacity.maximum, capacity.on_demand_base, capacity.spot_percentage) == (
        8,
        16,
        0,
        100,
    )
    assert len(settings.network.zones) == 3
    assert len(capacity.instance_types) >= 3
    assert capacity.warm_instances == 8


@pytest.mark.parametrize(
    ("fallback", "warm"),
    [
        ({}, 8),
        ({"policy": "ready-handover"}, 8),  # it buys at any price
        ({"policyParameters": {"shortageCost": 2}}, 8),
        ({"policyParameters": {"shortageCost": 1}}, 0),
        ({"policyParameters": {"shortageCost": 1}, "warmInstances": 5}, 5),
        ({"enabled": False}, 0),
    ],
)
def test_the_default_size_of_the_warm_pool_depends_on_the_shortage_cost(
    fallback: dict[str, Any], warm: int
) -> None:
    capacity = load_settings(changed(f"{CAPACITY}/fallback", fallback)).services[0].capacity
    assert capacity.warm_instances == warm


def test_the_engines_json_text_reads_like_the_stack_file() -> None:
    as_text = {k: v if isinstance(v, str) else json.dumps(v) for k, v in DEV.items()}
    assert load_settings(as_text) == load_settings(DEV)


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        (
            f"{CAPACITY}/spotPercentage",
            140,
            "gpu-spot:services[0].capacity.spotPercentage: 140, allowed: at most 100",
        ),
        (
            f"{CAPACITY}/spotPercentage",
            -1,
            "gpu-spot:services[0].capacity.spotPercentage: -1, allowed: at least 0",
        ),
        (
            f"{CAPACITY}/spotPercentage",
            "70",
            'gpu-spot:services[0].capacity.spotPercentage: "70", allowed: a whole number',
        ),
        (
            f"{CAPACITY}/kind",
            "spot-flet",
            "gpu-spot:services[0].capacity.kind: \"spot-flet\", allowed: 'mixed-asg' or 'spot-fleet'",
        ),
        (f"{CAPACITY}/target", None, "gpu-spot:services[0].capacity.target: missing, it has no default"),
        (
            f"{CAPACITY}/max",
            8,
            "gpu-spot:services[0].capacity.max: 8 is too low for the target, allowed: at least 9",
        ),
        (
            "gpu-spot:services/0/name",
            "a" * 25,
            f'gpu-spot:services[0].name: "{"a" * 25}", allowed: at most 24 characters',
        ),
        (
            "gpu-spot:tags",
            {f"t{n}": "v" for n in range(46)},
            "gpu-spot:tags: 46 tags, allowed: at most 44 (of AWS's 50, the stack uses the rest)",
        ),
        (
            f"{CAPACITY}/onDemandBase",
            9,
            "gpu-spot:services[0].capacity.onDemandBase: 9 is above the target, allowed: 0 to 8",
        ),
        (
            f"{CAPACITY}/instanceTypes",
            ["p2.xlarge"],
            "gpu-spot:services[0].capacity.instanceTypes: 'p2.xlarge' cannot be used: AWS has retired P2",
        ),
        (
            f"{CAPACITY}/instanceTypes",
            ["p3dn.24xlarge"],
            "gpu-spot:services[0].capacity.instanceTypes: 'p3dn.24xlarge' without 'ami' "
            "(NVIDIA's open kernel modules support Turing and newer)",
        ),
        (
            f"{CAPACITY}/instanceTypes",
            ["g5.xlarge", "g5.xlarge"],
            "gpu-spot:services[0].capacity.instanceTypes: 'g5.xlarge' is listed twice, "
            "allowed: each type once",
        ),
        (
            f"{CAPACITY}/instanceTypes",
            [],
            "gpu-spot:services[0].capacity.instanceTypes: [], allowed: a list of at least 1",
        ),
        (
            f"{CAPACITY}/ami",
            "ubuntu",
            'gpu-spot:services[0].capacity.ami: "ubuntu", allowed: text that matches ',
        ),
        (f"{CAPACITY}/maxPrice", 0, "gpu-spot:services[0].capacity.maxPrice: 0, allowed: at least 0.001"),
        (
            f"{CAPACITY}/fallback/warmInstance",
            2,
            "gpu-spot:services[0].capacity.fallback.warmInstance: unknown key, did you mean warmInstances? "
            "allowed: enabled, policy, policyParameters, reservation, warmInstances",
        ),
        (
            "gpu-spot:services/0/name",
            "In Ference",
            'gpu-spot:services[0].name: "In Ference", allowed: text that matches ',
        ),
        (
            "gpu-spot:services/0/drainSeconds",
            111,
            "gpu-spot:services[0].drainSeconds: 111, allowed: at most 110",
        ),
        (
            "gpu-spot:network/zones",
            [],
            "gpu-spot:network.zones: [], allowed: a list of at least 1",
        ),
        (
            "gpu-spot:network/zones",
            ["us-west-2a", "us-east-1b"],
            "gpu-spot:network.zones: 'us-east-1b' is not a zone of us-west-2, "
            "allowed: us-west-2a to us-west-2h",
        ),
        (
            "gpu-spot:network/zones",
            ["us-west-2a", "us-west-2a"],
            "gpu-spot:network.zones: 'us-west-2a' is listed twice, allowed: each zone once",
        ),
        ("gpu-spot:network/cidr", "10.0.0.0/8", "gpu-spot:network.cidr: a /8 network, allowed: /16 to /20"),
        (
            "gpu-spot:network/cidr",
            "10.0.0.1/16",
            "gpu-spot:network.cidr: not an IPv4 CIDR block (10.0.0.1/16 has host",
        ),
        (
            "gpu-spot:network/egress",
            "nat",
            "gpu-spot:network.egress: \"nat\", allowed: 'nat-gateway', 'nat-gateway-per-zone' or 'none'",
        ),
        (
            "gpu-spot:servces",
            [],
            "gpu-spot:servces: unknown key, did you mean services? "
            "allowed: budget, identity, kmsKeyArn, kubernetes, logRetentionDays, monitoring, network, "
            "protect, services, sharedHosts, storage, tags, tensorboard, training",
        ),
        ("gpu-spot:network", None, "gpu-spot:network: missing, it has no default"),
        ("aws:region", None, "aws:region: missing, it has no default"),
        ("aws:region", "oregon", 'aws:region: "oregon", allowed: text that matches '),
        ("gpu-spot:logRetentionDays", 31, "gpu-spot:logRetentionDays: 31, allowed: 1, 3, 5, 7,"),
        (
            "gpu-spot:tags",
            {"gpu-spot:stack": "x"},
            "gpu-spot:tags: tag 'gpu-spot:stack' is reserved, allowed: ",
        ),
        ("gpu-spot:network", "10.0.0.0/16", 'gpu-spot:network: "10.0.0.0/16", allowed: '),
    ],
)
def test_a_wrong_setting_is_one_line_that_names_it(path: str, value: Any, expected: str) -> None:
    lines = message(path, value).splitlines()
    assert lines[0].startswith(expected)
    assert all(line.startswith(("gpu-spot:", "aws:region")) for line in lines)


def test_each_error_is_a_line_of_its_own() -> None:
    raw = changed(f"{CAPACITY}/spotPercentage", 140)
    raw["gpu-spot:network"]["cidr"] = "nowhere"
    with pytest.raises(SettingsError) as caught:
        load_settings(raw)
    assert [line.split(": ")[0] for line in str(caught.value).splitlines()] == [
        "gpu-spot:network.cidr",
        "gpu-spot:services[0].capacity.spotPercentage",
    ]


def test_a_region_that_is_none_is_one_error_and_not_one_for_its_zones() -> None:
    with pytest.raises(SettingsError) as caught:
        load_settings(changed("aws:region", "us-west"))
    assert str(caught.value).startswith('aws:region: "us-west", allowed: text that matches ')
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize("written", [30.5, "30.5"])
def test_a_number_may_be_text_where_the_cli_writes_it_so(written: float | str) -> None:
    capacity = load_settings(changed(f"{CAPACITY}/fallback", {"policyParameters": {"shortageCost": written}}))
    assert capacity.services[0].capacity.fallback.policy_parameters == {"shortageCost": 30.5}
    with pytest.raises(
        SettingsError, match=r'policyParameters\.shortageCost: "dear", allowed: a valid number'
    ):
        load_settings(changed(f"{CAPACITY}/fallback", {"policyParameters": {"shortageCost": "dear"}}))


def test_two_services_of_one_name_are_refused() -> None:
    raw = changed("aws:region", "us-west-2")
    raw["gpu-spot:services"] *= 2
    with pytest.raises(SettingsError, match=r"^gpu-spot:services: two services are named 'inference'"):
        load_settings(raw)


def test_architectures_do_not_mix() -> None:
    text = message(f"{CAPACITY}/instanceTypes", ["g5.xlarge", "g5g.xlarge"])
    assert "g5.xlarge is nvidia on x86_64" in text
    assert "g5g.xlarge is nvidia on arm64" in text


def test_an_explicit_image_lets_p3dn_in() -> None:
    raw = changed(f"{CAPACITY}/instanceTypes", ["p3dn.24xlarge"])
    raw["gpu-spot:services"][0]["capacity"]["ami"] = "ami-0123456789abcdef0"
    assert load_settings(raw).services[0].capacity.instance_types == ("p3dn.24xlarge",)


def test_without_max_it_is_twice_the_target() -> None:
    assert load_settings(changed(f"{CAPACITY}/max", None)).services[0].capacity.maximum == 16


def test_other_namespaces_are_not_ours() -> None:
    assert load_settings({**DEV, "other:network": {"x": 1}}) == load_settings(DEV)


def test_the_engine_prints_a_settings_error_without_a_traceback() -> None:
    assert issubclass(SettingsError, pulumi.RunError)


def test_the_project_file_declares_every_key_with_the_same_default() -> None:
    project = yaml.safe_load((ROOT / "Pulumi.yaml").read_text("utf-8"))
    declared = {key.removeprefix("gpu-spot:"): entry for key, entry in project["config"].items()}
    fields = {f.alias or name: f for name, f in Settings.model_fields.items() if name != "region"}
    assert set(declared) == set(fields)
    assert all(entry["description"] for entry in declared.values())
    defaults = {f"gpu-spot:{key}": entry["default"] for key, entry in declared.items() if "default" in entry}
    assert {key for key in fields if f"gpu-spot:{key}" not in defaults} == {
        key for key, field in fields.items() if field.is_required()
    }
    assert load_settings({**DEV, **defaults}) == load_settings(DEV)
