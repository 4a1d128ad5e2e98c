"""What AWS would refuse, or accept and make a mess of: refused before anything is declared, by its key."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import yaml

from infra.catalogue import accelerators
from infra.schema import Settings
from infra.scope import Scope
from infra.settings import SettingsError, load_settings
from tests.infra.declared import ROOT

STACKS: dict[str, dict[str, Any]] = {
    stack: yaml.safe_load((ROOT / f"Pulumi.{stack}.yaml").read_text("utf-8"))["config"]
    for stack in ("dev", "fleet", "prod", "research", "research-efs")
}
SERVICE = "gpu-spot:services/0"
CAPACITY = f"{SERVICE}/capacity"
REMOVED = object()
FAMILY_IMAGES = {"g4dn": "ami-0000000b", "g6e": "ami-0000000c", "g7e": "ami-0000000d"}


def changed(stack: str, changes: dict[str, Any]) -> dict[str, Any]:
    raw = copy.deepcopy(STACKS[stack])
    for path, value in changes.items():
        *parents, last = path.split("/")
        here: Any = raw
        for part in parents:
            here = here[int(part)] if isinstance(here, list) else here.setdefault(part, {})
        if value is REMOVED:
            here.pop(last, None)
        else:
            here[last] = value
    return raw


def settings(stack: str, changes: dict[str, Any]) -> Settings:
    return load_settings(changed(stack, changes))


def network(**values: Any) -> dict[str, Any]:
    return {f"gpu-spot:network/{key}": value for key, value in values.items()}


def capacity(**values: Any) -> dict[str, Any]:
    return {f"{CAPACITY}/{key}": value for key, value in values.items()}


def requirements(**values: Any) -> dict[str, Any]:
    return capacity(instanceTypes=REMOVED, instanceRequirements=values)


def storage(**values: Any) -> dict[str, Any]:
    return {"gpu-spot:storage": values}


def monitoring(**values: Any) -> dict[str, Any]:
    return {"gpu-spot:monitoring": values}


def identity(**values: Any) -> dict[str, Any]:
    return {"gpu-spot:identity": values}


IMAGE = f"123456789012.dkr.ecr.us-west-2.amazonaws.com/worker@sha256:{'0' * 64}"
ONE: dict[str, Any] = {"kind": "mixed-asg", "target": 1, "instanceTypes": ["g5.xlarge", "g6.xlarge"]}
AMD: dict[str, Any] = ONE | {"instanceTypes": ["g4ad.xlarge"], "ami": "ami-0123456789abcdef0"}
PYTHON: dict[str, Any] = {"version": "3.12", "requirements": "requirements.txt"}
JOB: dict[str, Any] = {
    "name": "resnet",
    "capacity": ONE,
    "repository": "https://example.com/vision/resnet.git",
    "revision": "0123456789abcdef0123456789abcdef01234567",
    "command": ["python", "train.py"],
}


def training(**values: Any) -> dict[str, Any]:
    return {"gpu-spot:training": [JOB | values]}


POINT = {"name": "a", "path": "/a"}

PATTERN = "text that matches"

# (stack, changes, key that the message names, part of the message)
CASES: list[tuple[str, dict[str, Any], str, str]] = [
    # percentages, bounds
    ("dev", capacity(spotPercentage=101), "services[0].capacity.spotPercentage", "at most 100"),
    ("dev", capacity(spotPercentage=-5), "services[0].capacity.spotPercentage", "at least 0"),
    ("dev", capacity(spotPercentage=99.5), "services[0].capacity.spotPercentage", "99.5"),
    ("dev", capacity(target=-1), "services[0].capacity.target", "at least 0"),
    ("dev", capacity(target=5001), "services[0].capacity.target", "at most 5000"),
    ("dev", capacity(target=8.5), "services[0].capacity.target", "8.5"),
    ("dev", capacity(target=True), "services[0].capacity.target", "true"),
    ("dev", capacity(min=9), "services[0].capacity.min", "unknown key"),
    ("dev", capacity(max=8), "services[0].capacity.max", "at least 9"),
    ("dev", capacity(max=0), "services[0].capacity.max", "at least 1"),
    ("dev", capacity(max=10_001), "services[0].capacity.max", "at most 10000"),
    ("dev", capacity(onDemandBase=9), "services[0].capacity.onDemandBase", "above the target"),
    ("dev", capacity(onDemandCeiling=-1), "services[0].capacity.onDemandCeiling", "at least 0"),
    ("dev", capacity(maxPrice=0), "services[0].capacity.maxPrice", "at least 0.001"),
    ("dev", capacity(maxPrice=1001), "services[0].capacity.maxPrice", "at most 1000"),
    ("dev", capacity(drill=6), "services[0].capacity.drill", "at most 5"),
    ("dev", capacity(rootVolumeGiB=30), "services[0].capacity.rootVolumeGiB", "at least 75"),
    ("dev", capacity(rootVolumeGiB=20_000), "services[0].capacity.rootVolumeGiB", "at most 16384"),
    ("dev", {f"{SERVICE}/slotsPerGpu": 0}, "services[0].slotsPerGpu", "at least 1"),
    ("dev", {f"{SERVICE}/drainSeconds": 111}, "services[0].drainSeconds", "at most 110"),
    # the fallback
    ("dev", capacity(fallback={"warmInstances": 17}), "services[0].capacity.max", "at least 17"),
    (
        "dev",
        capacity(fallback={"enabled": False, "warmInstances": 2}),
        "services[0].capacity.fallback.warmInstances",
        "0 if enabled is false",
    ),
    ("dev", capacity(fallback={"policy": "hope"}), "services[0].capacity.fallback.policy", "'hope'"),
    (
        "dev",
        capacity(fallback={"policyParameters": {"luck": 1}}),
        "services[0].capacity.fallback.policyParameters",
        "no parameter 'luck'",
    ),
    (
        "dev",
        capacity(fallback={"enabled": False, "reservation": {"source": "cr-00000000", "count": 1}}),
        "services[0].capacity.fallback.reservation",
        "none if enabled is false",
    ),
    (
        "dev",
        capacity(fallback={"reservation": {"source": "cr-00000000"}}),
        "services[0].capacity.fallback.reservation.count",
        "missing",
    ),
    # types and images
    ("dev", capacity(instanceTypes=["m7i.xlarge"]), "services[0].capacity.instanceTypes", "'m7i.xlarge'"),
    ("dev", capacity(instanceTypes=["g5.7xlarge"]), "services[0].capacity.instanceTypes", "g5.xlarge"),
    ("dev", capacity(instanceTypes=["p2.xlarge"]), "services[0].capacity.instanceTypes", "retired P2"),
    ("dev", capacity(instanceTypes=["f1.2xlarge"]), "services[0].capacity.instanceTypes", "use f2"),
    ("dev", capacity(instanceTypes=["p3dn.24xlarge"]), "services[0].capacity.instanceTypes", "without 'ami'"),
    ("dev", capacity(instanceTypes=["g4ad.xlarge"]), "services[0].capacity.instanceTypes", "AMD's driver"),
    ("dev", capacity(instanceTypes=["trn1.2xlarge"]), "services[0].capacity.instanceTypes", "Neuron driver"),
    ("dev", capacity(instanceTypes=["f2.6xlarge"]), "services[0].capacity.instanceTypes", "FPGA"),
    (
        "dev",
        capacity(instanceTypes=["g5.xlarge", "g5g.xlarge"]),
        "services[0].capacity.instanceTypes",
        "one vendor and one architecture",
    ),
    (
        "dev",
        capacity(instanceTypes=["g5.xlarge", "g4ad.xlarge"], ami="ami-0123456789abcdef0"),
        "services[0].capacity.instanceTypes",
        "one vendor and one architecture",
    ),
    ("dev", capacity(instanceTypes=["g5.xlarge"] * 2), "services[0].capacity.instanceTypes", "listed twice"),
    ("dev", capacity(instanceTypes=[]), "services[0].capacity.instanceTypes", "at least 1"),
    ("dev", capacity(ami="ami-xyz"), "services[0].capacity.ami", "ami-xyz"),
    ("dev", capacity(amis={"g99": "ami-0123456789abcdef0"}), "services[0].capacity.amis", "'g99'"),
    ("dev", capacity(amis={"g5": "latest"}), "services[0].capacity.amis.g5", "latest"),
    (
        "dev",
        capacity(instanceTypes=["p3dn.24xlarge", "g6f.large"], amis={"p3dn": "ami-0123456789abcdef0"}),
        "services[0].capacity.instanceTypes",
        "'g6f.large' without 'ami'",
    ),
    # requirements
    ("dev", capacity(instanceTypes=REMOVED), "services[0].capacity.instanceRequirements", "neither"),
    ("dev", capacity(instanceRequirements={}), "services[0].capacity.instanceRequirements", "both"),
    (
        "dev",
        requirements(acceleratorNames=["K80"]),
        "services[0].capacity.instanceRequirements.acceleratorNames",
        "'K80'",
    ),
    (
        "dev",
        requirements(acceleratorNames=["V100"]),
        "services[0].capacity.instanceRequirements",
        "no known accelerator type matches",
    ),
    (
        "dev",
        requirements(vcpus={"min": 8, "max": 4}),
        "services[0].capacity.instanceRequirements.vcpus.max",
        "below min",
    ),
    (
        "dev",
        requirements(acceleratorMemoryGB={"min": 40}),
        "services[0].capacity.instanceRequirements.acceleratorMemoryGB",
        "did you mean acceleratorMemoryGiB?",
    ),
    (
        "fleet",
        requirements() | network(zones=[f"us-west-2{letter}" for letter in "abcde"]),
        "services",
        "'inference' with 1 image(s) in 5 zone(s) are 5 sets, allowed: at most 4",
    ),
    (
        "dev",
        requirements() | capacity(amis=dict.fromkeys(("g5", "g6"), "ami-0000000a") | FAMILY_IMAGES),
        "services",
        "with 5 images are 5 sets",
    ),
    (
        "dev",
        requirements() | capacity(allocationStrategy="capacity-optimized-prioritized"),
        "services[0].capacity.allocationStrategy",
        "a strategy that needs no order",
    ),
    (
        "dev",
        capacity(allocationStrategy="diversified"),
        "services[0].capacity.allocationStrategy",
        "diversified",
    ),
    # fleets
    ("dev", capacity(kind="ec2-fleet"), "services[0].capacity.kind", "'spot-fleet'"),
    ("dev", capacity(fleetType="request"), "services[0].capacity.fleetType", "'maintain'"),
    ("fleet", capacity(fleetType="instant"), "services[0].capacity.fleetType", "'request'"),
    (
        "fleet",
        capacity(fleetType="request"),
        "services[0].capacity.fallback",
        "a fallback with fleetType 'request'",
    ),
    (
        "fleet",
        capacity(fleetType="request", fallback=REMOVED, target=0),
        "services[0].capacity.target",
        "at least 1",
    ),
    ("fleet", capacity(spotPercentage=101), "services[0].capacity.spotPercentage", "at most 100"),
    # what is counted
    ("dev", capacity(unit="workers"), "services[0].capacity.unit", "'gpus'"),
    (
        "dev",
        capacity(unit="gpus", fallback={"warmInstances": 1}),
        "services[0].capacity.unit",
        "with fallback.warmInstances, allowed: 0 warm",
    ),
    (
        "dev",
        capacity(unit="gpus", instanceTypes=REMOVED, instanceRequirements={}),
        "services[0].capacity.unit",
        "with instanceRequirements, allowed: with instanceTypes",
    ),
    (
        "dev",
        capacity(unit="gpus", target=2, max=REMOVED, instanceTypes=["g6.xlarge", "g6.12xlarge"]),
        "services[0].capacity.max",
        "4 is too low for the target, allowed: at least 6",
    ),
    (
        "research",
        {"gpu-spot:training/0/capacity/unit": "gpus"},
        "training[0].capacity",
        "unit 'gpus', allowed: 'instances'",
    ),
    ("dev", {"gpu-spot:kmsKeyArn": "alias/mine"}, "kmsKeyArn", "arn:aws"),
    (
        "dev",
        {"gpu-spot:kmsKeyArn": "arn:aws:kms:us-east-1:123456789012:key/00000000-0000-0000-0000-000000000000"},
        "kmsKeyArn",
        "keys of us-west-2",
    ),
    # services
    ("dev", {f"{SERVICE}/image": "worker:latest"}, "services[0].image", PATTERN),
    ("dev", {f"{SERVICE}/reportsReadiness": True}, "services[0].reportsReadiness", "without an image"),
    (
        "dev",
        {f"{SERVICE}/image": IMAGE} | capacity(instanceTypes=["g4ad.xlarge"], ami="ami-0123456789abcdef0"),
        "services[0].image",
        "allowed: on NVIDIA GPUs",
    ),
    # training
    ("dev", training(repository="http://example.com/a"), "training[0].repository", PATTERN),
    ("dev", training(repository="https://me:secret@example.com/a"), "training[0].repository", PATTERN),
    ("dev", training(revision="main"), "training[0].revision", PATTERN),
    ("dev", training(revision="0123abc"), "training[0].revision", PATTERN),
    ("dev", training(repository="git@example.com:a.git"), "training[0].repository", PATTERN),
    ("dev", training(repositorySecret="arn:a:*"), "training[0].repositorySecret", PATTERN),
    ("dev", training(image="pytorch:latest"), "training[0].image", PATTERN),
    ("dev", training(image=IMAGE, python=PYTHON), "training[0].python", "allowed: one of them"),
    ("dev", training(image=IMAGE, capacity=AMD), "training[0].image", "a container without NVIDIA GPUs"),
    ("dev", training(python=PYTHON | {"version": "2.7"}), "training[0].python.version", PATTERN),
    (
        "dev",
        training(python=PYTHON | {"requirements": "../a.txt"}),
        "training[0].python.requirements",
        "matches",
    ),
    (
        "dev",
        training(python=PYTHON | {"requirements": "uv.lock"}),
        "training[0].python.requirements",
        "pylock",
    ),
    ("dev", training(command=[]), "training[0].command", "at least 1"),
    ("dev", training(command="python train.py"), "training[0].command", "array"),
    ("dev", training(dataset="s3://datasets/imagenet"), "training[0].dataset", PATTERN),
    ("dev", training(dataset="s3://datasets/*/"), "training[0].dataset", PATTERN),
    ("dev", training(dataset="/data/"), "training[0].dataset", PATTERN),
    ("dev", training(volumeGiB=-1), "training[0].volumeGiB", "at least 0"),
    ("dev", training(volumeGiB=16_385), "training[0].volumeGiB", "at most 16384"),
    ("dev", training(volumeGib=100), "training[0].volumeGib", "did you mean volumeGiB?"),
    ("dev", training(checkpoints="efs"), "training", "allowed: 'volume'"),
    ("prod", training(checkpoints="checkpoint"), "training", "'volume', 'checkpoints', 'artifacts'"),
    ("dev", training(name="inference"), "training", "two services or training jobs are named 'inference'"),
    ("dev", training(capacity=ONE | {"target": 2}), "training[0].capacity.target", "2, allowed: 1"),
    (
        "dev",
        training(capacity=ONE | {"kind": "spot-fleet", "fleetType": "request"}),
        "training[0].capacity",
        "allowed: 'maintain'",
    ),
    # names
    ("dev", {f"{SERVICE}/name": "a" * 25}, "services[0].name", "24"),
    ("dev", {f"{SERVICE}/name": "Inference"}, "services[0].name", "Inference"),
    ("dev", {f"{SERVICE}/name": "in--"}, "services[0].name", "in--"),
    ("dev", {"gpu-spot:tags": {"aws:x": "y"}}, "tags", "reserved"),
    ("dev", {"gpu-spot:tags": {"a b": "y"}}, "tags.a b", "a b"),
    ("dev", {"gpu-spot:tags": {"a": "y" * 257}}, "tags.a", "256"),
    # storage
    ("dev", storage(filesystem={}), "storage.filesystem", "did you mean fileSystem?"),
    (
        "dev",
        storage(fileSystem={"infrequentAfterDays": 45}),
        "storage.fileSystem.infrequentAfterDays",
        "30, 60",
    ),
    (
        "dev",
        storage(fileSystem={"accessPoints": [POINT, POINT]}),
        "storage.fileSystem.accessPoints",
        "two access points are named 'a'",
    ),
    (
        "dev",
        storage(fileSystem={"accessPoints": [POINT | {"path": "a"}]}),
        "storage.fileSystem.accessPoints[0].path",
        PATTERN,
    ),
    (
        "dev",
        storage(fileSystem={"accessPoints": [POINT | {"userId": 0}]}),
        "storage.fileSystem.accessPoints[0].userId",
        "at least 1",
    ),
    ("dev", storage(buckets=[{"name": "a"}, {"name": "a"}]), "storage.buckets", "two buckets are named 'a'"),
    ("dev", storage(buckets=[{"name": "A_b"}]), "storage.buckets[0].name", "A_b"),
    ("dev", storage(buckets=[{"name": "a", "expireDays": 0}]), "storage.buckets[0].expireDays", "at least 1"),
    (
        "dev",
        storage(repositories=[{"name": "a", "keepImages": 1001}]),
        "storage.repositories[0].keepImages",
        "at most 1000",
    ),
    # monitoring, identity
    ("dev", monitoring(email="ops"), "monitoring.email", "ops"),
    ("dev", monitoring(shortageMinutes=0), "monitoring.shortageMinutes", "at least 1"),
    ("dev", monitoring(onDemandMinutes=7), "monitoring.onDemandMinutes", "multiple of 5"),
    ("dev", monitoring(monthlyBudgetUsd=0), "monitoring.monthlyBudgetUsd", "at least 1"),
    ("dev", identity(permissionsBoundary="bound"), "identity.permissionsBoundary", "bound"),
    ("dev", identity(previews={}), "identity.previews.repository", "missing"),
    ("dev", identity(previews={"repository": "gpu-spot"}), "identity.previews.repository", "gpu-spot"),
    ("dev", {"gpu-spot:protect": "yes"}, "protect", "yes"),
    ("dev", {"gpu-spot:logRetentionDays": 45}, "logRetentionDays", "30, 60"),
]


@pytest.mark.parametrize(("stack", "changes", "key", "says"), CASES)
def test_it_is_refused_by_its_key(stack: str, changes: dict[str, Any], key: str, says: str) -> None:
    with pytest.raises(SettingsError) as caught:
        settings(stack, changes)
    [line] = str(caught.value).splitlines()
    assert line.startswith(f"gpu-spot:{key}: ")
    assert says in line
    assert "allowed" in line or "missing" in line


@pytest.mark.parametrize("stack", list(STACKS))
def test_the_environments_that_ship_are_valid_and_warn_of_nothing(stack: str) -> None:
    assert not list(settings(stack, {}).warnings())


def test_a_training_job_is_a_group_of_its_own() -> None:
    both = settings("prod", training(checkpoints="checkpoints", dataset="s3://datasets/imagenet/"))
    assert list(both.capacities) == ["inference", "resnet"]
    image, warning = both.warnings()
    assert image.startswith("gpu-spot:training[0].checkpoints: the file system needs amazon-efs-utils")
    assert warning.startswith("gpu-spot:training[0].repository: with network.egress 'none'")
    own = training(checkpoints="checkpoints", capacity={**JOB["capacity"], "ami": "ami-0000000a"})
    assert [w for w in settings("prod", own).warnings() if "efs-utils" in w] == []


def test_slots_follow_the_accelerators() -> None:
    mixed = capacity(instanceTypes=["g5.xlarge", "g5.12xlarge"]) | {f"{SERVICE}/slotsPerGpu": 2}
    assert settings("dev", mixed).services[0].slots == {"g5.xlarge": 2, "g5.12xlarge": 8}
    amd = capacity(instanceTypes=["g4ad.xlarge", "g4ad.16xlarge"], ami="ami-0123456789abcdef0")
    assert settings("dev", amd).services[0].slots == {"g4ad.xlarge": 1, "g4ad.16xlarge": 1}


def test_a_single_capacity_pool_is_a_warning() -> None:
    one = settings("dev", network(zones=["us-west-2a"]) | capacity(instanceTypes=["g5.xlarge"]))
    [warning] = one.warnings()
    assert warning.startswith("gpu-spot:services[0].capacity.instanceTypes: one type in one zone")
    two = settings("dev", network(zones=["us-west-2a", "us-west-2b"]) | capacity(instanceTypes=["g5.xlarge"]))
    assert not list(two.warnings())


def test_a_request_fleet_has_no_fallback_by_default() -> None:
    fleet = settings("fleet", capacity(fleetType="request", fallback=REMOVED)).services[0].capacity
    assert not fleet.fallback.enabled
    assert not fleet.is_managed


@pytest.mark.parametrize("percentage", [0, 25, 75, 100])
@pytest.mark.parametrize("fleet_type", ["maintain", "request"])
def test_a_fleet_accepts_every_spot_percentage(fleet_type: str, percentage: int) -> None:
    changes = capacity(fleetType=fleet_type, fallback=REMOVED, onDemandBase=2, spotPercentage=percentage)
    accepted = settings("fleet", changes).services[0].capacity
    assert (accepted.fleet_type, accepted.spot_percentage) == (fleet_type, percentage)


def test_max_makes_room_for_a_swap_where_there_is_a_fallback() -> None:
    with pytest.raises(SettingsError, match=r"capacity\.max: 1 is too low"):
        settings("dev", capacity(target=1, max=1, fallback={}))
    assert settings("dev", capacity(target=1, max=1, fallback={"enabled": False})).services


@pytest.mark.parametrize(
    ("base", "percentage", "given", "ceiling"),
    [(0, 100, None, 4), (2, 100, None, 5), (0, 0, None, 8), (2, 50, None, 7), (0, 100, 3, 3)],
)
def test_the_ceiling_leaves_room_for_half_of_the_spot_share(
    base: int, percentage: int, given: int | None, ceiling: int
) -> None:
    changes = capacity(onDemandBase=base, spotPercentage=percentage)
    if given is not None:
        changes |= capacity(onDemandCeiling=given)
    assert settings("dev", changes).services[0].capacity.ceiling == ceiling


def test_requirements_take_what_matches_and_boots_and_no_bare_metal() -> None:
    wanted = requirements(acceleratorNames=["T4", "V100"], accelerators={"max": 8}, vcpus={"max": 96})
    types = settings("dev", wanted).services[0].capacity.types
    assert set(types) == {f"g4dn.{size}xlarge" for size in ("", 2, 4, 8, 12, 16)}
    with_p3dn = settings("dev", wanted | capacity(amis={"p3dn": "ami-0123456789abcdef0"}))
    assert set(with_p3dn.services[0].capacity.types) - set(types) == {"p3dn.24xlarge"}


def test_types_are_grouped_by_the_image_that_boots_them() -> None:
    mixed = capacity(
        instanceTypes=["g5.xlarge", "p3dn.24xlarge", "g6.xlarge"], amis={"p3dn": "ami-0123456789abcdef0"}
    )
    images = settings("dev", mixed).services[0].capacity.images
    assert dict(images) == {
        accelerators.ami_parameter("x86_64"): ("g5.xlarge", "g6.xlarge"),
        "ami-0123456789abcdef0": ("p3dn.24xlarge",),
    }


def test_a_stack_name_too_long_for_its_resources_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"has 58 characters, allowed: at most 56"):
        Scope("a-long-name-of-a-stack", "us-west-2", "1", "aws").name("inference", "fallback", "p6-b200")
