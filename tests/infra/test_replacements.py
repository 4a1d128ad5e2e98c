"""docs/operations.md lists what a changed stack file replaces: no less than it does, and no more."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.infra import training
from tests.infra.declared import ROOT, run, variant
from tests.infra.test_fixed import differences
from tests.oracles.replacements import FORCES_NEW


def fleet(config: dict[str, Any]) -> dict[str, Any]:
    capacity: dict[str, Any] = config["gpu-spot:services"][0]["capacity"]
    return capacity


def many_of_a_fleet(config: dict[str, Any]) -> None:
    fleet(config).update(
        instanceTypes=["g5.xlarge"],
        allocationStrategy="capacity-optimized",
        maxPrice=1.5,
        ami="ami-0123456789abcdef1",
        rootVolumeGiB=200,
        target=6,
        max=12,
        onDemandBase=1,
        onDemandCeiling=3,
    )
    config["gpu-spot:services"][0] |= {"slotsPerGpu": 2, "drainSeconds": 10}


def requirements_of_a_fleet(config: dict[str, Any]) -> None:
    fleet(config).update(instanceTypes=None, instanceRequirements={})


def a_request(config: dict[str, Any]) -> None:
    fleet(config).update(fleetType="request", fallback={"enabled": False})


def a_bigger_request(config: dict[str, Any]) -> None:
    a_request(config)
    fleet(config).update(target=12, onDemandBase=2)


def storage_and_network(config: dict[str, Any]) -> None:
    point = config["gpu-spot:storage"]["fileSystem"]["accessPoints"][0]
    point.update(path="/elsewhere", userId=1001)
    config["gpu-spot:storage"]["fileSystem"]["infrequentAfterDays"] = 7
    config["gpu-spot:storage"]["buckets"][1]["expireDays"] = 30
    config["gpu-spot:storage"]["repositories"][0]["keepImages"] = 5
    config["gpu-spot:network"].update(cidr="10.99.0.0/16", flowLogs="rejected")
    config["gpu-spot:tags"]["environment"] = "other"
    config["gpu-spot:logRetentionDays"] = 30
    config["gpu-spot:protect"] = False


def own_key(config: dict[str, Any]) -> None:
    config["gpu-spot:kmsKeyArn"] = (
        "arn:aws:kms:us-west-2:123456789012:key/00000000-0000-0000-0000-000000000000"
    )


def existing(which: str) -> Callable[[dict[str, Any]], None]:
    subnet, vpc = {"a": ("subnet-0000000a", "vpc-0000000a"), "b": ("subnet-000000aa", "vpc-0000000e")}[which]

    def change(config: dict[str, Any]) -> None:
        config["gpu-spot:network"] = {"vpcId": vpc, "subnets": {"us-west-2a": subnet}}

    return change


def nothing(config: dict[str, Any]) -> None:
    pass


def revision(commit: str) -> Callable[[dict[str, Any]], None]:
    def change(config: dict[str, Any]) -> None:
        config["gpu-spot:training"] = [training.job(revision=commit * 40)]

    return change


def mail(address: str) -> Callable[[dict[str, Any]], None]:
    def change(config: dict[str, Any]) -> None:
        config["gpu-spot:monitoring"] = {"email": address}

    return change


def queue(**settings: Any) -> Callable[[dict[str, Any]], None]:
    def change(config: dict[str, Any]) -> None:
        given = {"kind": "rabbitmq", "instanceType": "mq.m7g.large", **settings}
        config["gpu-spot:services"][0] |= {"command": ["serve"], "queue": given}

    return change


CHANGED_QUEUE = queue(
    instanceType="mq.m7g.xlarge",
    engineVersion="3.13",
    deployment="cluster",
    allowedSources=["10.30.0.0/16"],
    maintenance={"day": "monday"},
    name="pages",
    maxDeliveries=3,
    maxLength=10,
)


def boundary(config: dict[str, Any]) -> None:
    mail("b@example.com")(config)
    config["gpu-spot:identity"] = {"permissionsBoundary": "arn:aws:iam::123456789012:policy/boundary"}


def replaced(
    stack: str,
    before: Callable[[dict[str, Any]], None],
    after: Callable[[dict[str, Any]], None],
    folder: Path,
) -> set[str]:
    runs = []
    for name, change in (("before", before), ("after", after)):
        (folder / name).mkdir(parents=True)
        runs.append(
            run("known", variant(folder / name, change, ROOT / "stacks" / f"Pulumi.{stack}.yaml"), stack)
        )
    changed = differences(*runs, shared_only=True)
    return {
        f"{kind}.{key}"
        for resource, keys in changed.items()
        for kind in [resource.partition(" ")[0]]
        for key in keys & FORCES_NEW.get(kind, set())
    }


@pytest.fixture(scope="module")
def listed() -> set[str]:
    text = (ROOT / "docs" / "operations.md").read_text("utf-8")
    table = text.split("## What is replaced")[1].split("\n## ")[0]
    return set(re.findall(r"`([A-Z]\w+\.\w+)`", table))


@pytest.mark.soak
def test_the_page_lists_what_a_changed_stack_file_replaces(listed: set[str], tmp_path: Path) -> None:
    found = {
        *replaced("fleet", nothing, many_of_a_fleet, tmp_path / "fleet"),
        *replaced("fleet", nothing, requirements_of_a_fleet, tmp_path / "requirements"),
        *replaced("fleet", nothing, a_request, tmp_path / "type"),
        *replaced("fleet", a_request, a_bigger_request, tmp_path / "request"),
        *replaced("prod", nothing, storage_and_network, tmp_path / "prod"),
        *replaced("prod", nothing, own_key, tmp_path / "key"),
        *replaced("prod", existing("a"), existing("b"), tmp_path / "existing"),
        *replaced("dev", revision("a"), revision("b"), tmp_path / "revision"),
        *replaced("dev", queue(), CHANGED_QUEUE, tmp_path / "queue"),
        *replaced("dev", mail("a@example.com"), boundary, tmp_path / "dev"),
    }
    assert found == listed
