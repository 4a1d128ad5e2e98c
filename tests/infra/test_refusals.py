"""What AWS would refuse, or accept and make a mess of: refused before anything is declared, by its key."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from infra.catalogue import accelerators
from infra.schema import Settings
from infra.schema.model_tree import chosen_model, element_type, is_model, key_types
from infra.settings import SettingsError, load_settings
from tests.infra.declared import ROOT
from tests.sentences import faults


def stack_file(stack: str) -> dict[str, Any]:
    content = yaml.safe_load((ROOT / "stacks" / f"Pulumi.{stack}.yaml").read_text("utf-8"))
    return dict(content["config"])


STACKS = {stack: stack_file(stack) for stack in ("dev", "fleet", "prod", "research", "research-efs")}
SERVICE = "gpu-spot:services/0"
CAPACITY = f"{SERVICE}/capacity"
REMOVED = object()


def changed(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    raw = copy.deepcopy(base)
    for path, value in changes.items():
        *parents, last = path.split("/")
        here: Any = raw
        for part in parents:
            here = here[int(part)] if isinstance(here, list) else here.setdefault(part, {})
        if value is REMOVED:
            here.pop(last, None)
        elif not isinstance(here, list):
            here[last] = value
        else:
            here[int(last) : int(last) + 1] = [value]
    return raw


def settings(stack: str, changes: dict[str, Any]) -> Settings:
    return load_settings(changed(STACKS[stack], changes))


def network(**values: Any) -> dict[str, Any]:
    return {f"gpu-spot:network/{key}": value for key, value in values.items()}


def capacity(**values: Any) -> dict[str, Any]:
    return {f"{CAPACITY}/{key}": value for key, value in values.items()}


def requirements(**values: Any) -> dict[str, Any]:
    return capacity(instanceTypes=REMOVED, instanceRequirements=values)


IMAGE = f"123456789012.dkr.ecr.us-west-2.amazonaws.com/worker@sha256:{'0' * 64}"
ONE: dict[str, Any] = {"kind": "mixed-asg", "target": 1, "instanceTypes": ["g5.xlarge", "g6.xlarge"]}
JOB: dict[str, Any] = {
    "name": "resnet",
    "capacity": ONE,
    "repository": "https://example.com/vision/resnet.git",
    "revision": "0123456789abcdef0123456789abcdef01234567",
    "command": ["python", "train.py"],
}


def training(**values: Any) -> dict[str, Any]:
    return {"gpu-spot:training": [JOB | values]}


class _Table(yaml.SafeLoader):
    """Reads ``refusals.yaml``."""


def _repeated(loader: _Table, node: yaml.SequenceNode) -> str:
    before, text, times, after = loader.construct_sequence(node)
    return f"{before}{text * times}{after}"


def _numbers(loader: _Table, node: yaml.SequenceNode) -> list[Any]:
    below, *texts = loader.construct_sequence(node)
    return [str(number) if texts else number for number in range(below)]


_Table.add_constructor("!repeated", _repeated)
_Table.add_constructor("!numbers", _numbers)


def _refused() -> Iterator[tuple[str, dict[str, Any], dict[str, Any], list[str]]]:
    """Yield the name of a base, the base, changes by path, and how each line of the error begins."""

    def whole(paths: dict[str, Any]) -> dict[str, Any]:
        values = {key: REMOVED if value == "(none)" else value for key, value in paths.items()}
        return {key if key.startswith("aws:") else f"gpu-spot:{key}": value for key, value in values.items()}

    table = yaml.load(Path(__file__).with_name("refusals.yaml").read_text("utf-8"), _Table)
    for name, section in table.items():
        base = stack_file(section["of"]) if "of" in section else {}
        base = changed(base, whole(section.get("changes") or section.get("whole") or {}))
        for changes, said in section["refused"]:
            yield name, base, whole(changes), [said] if isinstance(said, str) else said


REFUSED = list(_refused())


@pytest.mark.parametrize(
    ("base", "changes", "said"),
    [row[1:] for row in REFUSED],
    ids=[f"{row[0]}: {row[3][0]}" for row in REFUSED],
)
def test_it_is_refused_by_its_key(base: dict[str, Any], changes: dict[str, Any], said: list[str]) -> None:
    with pytest.raises(SettingsError) as caught:
        load_settings(changed(base, changes))
    lines = str(caught.value).splitlines()
    assert len(lines) == len(said)
    for line, begin in zip(lines, said, strict=True):
        assert line.removeprefix("gpu-spot:").startswith(begin)
        assert not faults(line), line


WRONG: Final = (None, "", "\n", 1.5, -1, 10**9, True, [], [[]], {}, {"unknown": 1}, "it's")
"""Values of which each key refuses some: another type, empty, below and above, unknown keys."""


def _keys(value: Any, annotation: Any, path: str) -> Iterator[tuple[str, str]]:
    """Yield each key below a value, also those that it lacks, with its path; lists by their first entry."""
    if isinstance(value, list):
        if value:
            yield f"{path}/0", f"{path}[]"
            yield from _keys(value[0], element_type(annotation), f"{path}/0")
    elif isinstance(value, dict):
        model = annotation if is_model(annotation) else chosen_model(annotation, value.get("kind"))
        types = key_types(model) if model is not None else dict.fromkeys(value)
        for key in (*types, "unknownKey"):
            yield f"{path}/{key}", f"{model and model.__name__}.{key}"
            if key in value:
                yield from _keys(value[key], types[key], f"{path}/{key}")


def test_each_error_of_each_key_is_a_sentence() -> None:
    tried: set[str] = set()
    refused = []
    for stack in sorted(
        path.stem.removeprefix("Pulumi.") for path in (ROOT / "stacks").glob("Pulumi.*.yaml")
    ):
        raw = stack_file(stack)
        whole = {key.removeprefix("gpu-spot:"): value for key, value in raw.items()}
        for path, kind in _keys(whole, Settings, ""):
            if kind in tried or path == "/region":
                continue
            tried.add(kind)
            for value in WRONG if path.endswith("/0") else (*WRONG, REMOVED):
                try:
                    load_settings(changed(raw, {f"gpu-spot:{path.removeprefix('/')}": value}))
                except SettingsError as error:
                    refused += str(error).splitlines()
    assert len(tried) > 200
    assert len(refused) > 2_000
    assert not {line: faults(line) for line in refused if faults(line)}


def test_the_table_of_refusals_is_read_whole() -> None:
    assert len(REFUSED) > 450


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


def test_workers_of_several_gpus_are_counted_as_workers() -> None:
    wide = capacity(instanceTypes=["g6.12xlarge", "g6e.48xlarge"]) | {f"{SERVICE}/gpusPerWorker": 4}
    service = settings("dev", wide).services[0]
    assert service.slots == {"g6.12xlarge": 1, "g6e.48xlarge": 2}
    assert (service.workers_per_slot, service.max_slots) == (2, 2)


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


def test_max_makes_room_for_a_swap_where_there_is_a_fallback() -> None:
    with pytest.raises(SettingsError, match=r"capacity\.max must be at least 2"):
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


def test_requirements_leave_out_what_aws_would_by_processors_and_memory() -> None:
    service = settings("dev", requirements(vcpus={"max": 8}, memoryGiB={"min": 64})).services[0]
    assert service.capacity.types == ("g6e.2xlarge", "g7e.2xlarge")
    assert service.workers_per_slot == 1


def test_shared_memory_fits_types_of_each_vendor() -> None:
    amd = capacity(instanceTypes=["g4ad.xlarge"], ami="ami-0123456789abcdef0")
    assert settings("dev", amd | {f"{SERVICE}/shmGiB": 15}).services[0].shm_gib == 15
    with pytest.raises(SettingsError, match=r"shmGiB is 16, but g4ad\.xlarge has 16 GiB; choose less"):
        settings("dev", amd | {f"{SERVICE}/shmGiB": 16})


def test_types_are_grouped_by_the_image_that_boots_them() -> None:
    mixed = capacity(
        instanceTypes=["g5.xlarge", "p3dn.24xlarge", "g6.xlarge"], amis={"p3dn": "ami-0123456789abcdef0"}
    )
    images = settings("dev", mixed).services[0].capacity.images
    assert dict(images) == {
        accelerators.ami_parameter("x86_64"): ("g5.xlarge", "g6.xlarge"),
        "ami-0123456789abcdef0": ("p3dn.24xlarge",),
    }
