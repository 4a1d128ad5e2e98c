"""docs/operations.md lists what a changed stack file replaces: no less than it does, and no more."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.infra import training
from tests.infra.declared import ROOT, Edit, edited_stack, in_capacity, in_service
from tests.infra.test_fixed import KEY, differences
from tests.oracles.replacements import FORCES_NEW

NOTHING: dict[str, Any] = {}
MANY_OF_A_FLEET = {
    **in_capacity(
        instanceTypes=["g5.xlarge"],
        allocationStrategy="capacity-optimized",
        maxPrice=1.5,
        ami="ami-0123456789abcdef1",
        rootVolumeGiB=200,
        target=6,
        max=12,
        onDemandBase=1,
        onDemandCeiling=3,
    ),
    **in_service(slotsPerGpu=2, drainSeconds=10),
}
REQUIREMENTS = in_capacity(instanceTypes=None, instanceRequirements={})
A_REQUEST = in_capacity(fleetType="request", fallback={"enabled": False})
STORAGE_AND_NETWORK = {
    "storage.fileSystem.accessPoints[0].path": "/elsewhere",
    "storage.fileSystem.accessPoints[0].userId": 1001,
    "storage.fileSystem.infrequentAfterDays": 7,
    "storage.buckets[1].expireDays": 30,
    "storage.repositories[0].keepImages": 5,
    "network.cidr": "10.99.0.0/16",
    "network.flowLogs": "rejected",
    "tags.environment": "other",
    "logRetentionDays": 30,
    "protect": False,
}
BOUNDARY = {"identity": {"permissionsBoundary": "arn:aws:iam::123456789012:policy/boundary"}}


def existing(subnet: str, vpc: str) -> dict[str, Any]:
    return {"network": {"vpcId": vpc, "subnets": {"us-west-2a": f"subnet-{subnet}"}}}


def revision(commit: str) -> dict[str, Any]:
    return {"training": [training.job(revision=commit * 40)]}


def mail(address: str) -> dict[str, Any]:
    return {"monitoring": {"email": address}}


def queue(**settings: Any) -> dict[str, Any]:
    return in_service(command=["serve"], queue={**training.OWN, **settings})


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


def replaced(stack: str, before: Edit, after: Edit) -> set[str]:
    changed = differences(edited_stack(before, stack), edited_stack(after, stack), shared_only=True)
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
def test_the_page_lists_what_a_changed_stack_file_replaces(listed: set[str]) -> None:
    found = {
        *replaced("fleet", NOTHING, MANY_OF_A_FLEET),
        *replaced("fleet", NOTHING, REQUIREMENTS),
        *replaced("fleet", NOTHING, A_REQUEST),
        *replaced("fleet", A_REQUEST, {**A_REQUEST, **in_capacity(target=12, onDemandBase=2)}),
        *replaced("prod", NOTHING, STORAGE_AND_NETWORK),
        *replaced("prod", NOTHING, {"kmsKeyArn": KEY}),
        *replaced("prod", existing("0000000a", "vpc-0000000a"), existing("000000aa", "vpc-0000000e")),
        *replaced("dev", revision("a"), revision("b")),
        *replaced("dev", queue(), CHANGED_QUEUE),
        *replaced("dev", mail("a@example.com"), {**mail("b@example.com"), **BOUNDARY}),
    }
    assert found == listed
