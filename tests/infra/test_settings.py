"""A wrong key or value is named with its full path; what the schema takes of any work, and its warnings."""

from __future__ import annotations

import dataclasses
import json
import re
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pulumi
import pytest
import yaml

from contracts.group import config as contract
from contracts.group.config import GroupConfig
from infra.components.capacity.capacity_group import CapacityGroup
from infra.program import group_config
from infra.schema import Service, Settings
from infra.settings import SettingsError, load_settings
from tests.infra import test_refusals as refusals
from tests.infra.test_refusals import IMAGE, SERVICE, STACKS, settings, training
from tests.infra.training import job as research_job

SCHEMA = Path(__file__).parents[2] / "infra" / "schema"
WHEN = "2027-03-01T18:00:00+01:00"


def declared(**job: Any) -> Settings:
    return settings("prod", training(**{"deadline": WHEN, **job}))


@pytest.mark.parametrize("text", [WHEN, "2027-03-01T17:00:00Z", "2027-03-01 12:00-05:00"])
def test_a_deadline_is_one_moment_however_its_zone_is_written(text: str) -> None:
    [job] = declared(deadline=text).training
    assert job.deadline_at == datetime(2027, 3, 1, 17, tzinfo=UTC).timestamp()


def test_a_date_that_has_passed_is_a_warning_for_the_job_may_be_done() -> None:
    stack = declared()
    assert list(stack.past_deadlines(datetime(2027, 3, 1, 16, 59, tzinfo=UTC))) == []
    [warning] = stack.past_deadlines(datetime(2027, 3, 1, 17, 0, tzinfo=UTC))
    assert warning.startswith(f"gpu-spot:training[0].deadline: {WHEN} has passed")


SNAPSHOT = "snap-0123456789abcdef0"


def datasets(*paths: str, **values: Any) -> list[dict[str, Any]]:
    return [{"snapshot": SNAPSHOT, "path": path, **values} for path in paths]


def serving(**values: Any) -> dict[str, Any]:
    return {f"{SERVICE}/{key}": value for key, value in values.items()}


def test_all_of_it_may_be_said_at_once() -> None:
    both = settings(
        "dev",
        serving(
            image=IMAGE,
            command=["sh", "-c", "first\nsecond", "ünïcode", ""],
            environment={"MODEL": "llama = 3", "EMPTY": ""},
            datasets=datasets("/data/a", "/data/ab", "/mnt/c/d", "/dltraining/datasets/e"),
            reportsReadiness=True,
        )
        | training(
            datasets=datasets("/dltraining/datasets/a"),
            environment={"A": "b"},
            maxRestarts=0,
            throughputMib=750,
            initializationRateMib=100,
        ),
    )
    assert both.services[0].environment == {"MODEL": "llama = 3", "EMPTY": ""}
    assert both.training[0].max_restarts == 0
    # The copy of its own dataset and shared ones elsewhere.
    assert settings("dev", training(dataset="s3://datasets/a/", datasets=datasets("/data/a")))


def test_a_command_without_an_image_may_say_that_it_is_ready() -> None:
    assert settings("dev", serving(command=["serve"], reportsReadiness=True)).services[0].reports_readiness


def test_each_experiment_has_a_budget_of_its_own() -> None:
    several = settings("dev", training(budget=5, matrix={"SEED": [1, 2, 3]}))
    assert [job.budget for job in several.jobs] == [5, 5, 5]


PREPARE = {"version": "1", "command": ["true"], "instanceType": "m7i.large"}
MOUNT = "/dltraining/checkpoints/resnet"


def warnings(**changes: Any) -> list[str]:
    job = research_job(**{"checkpoints": "checkpoints", "dataset": None, **changes})
    settings = load_settings({**STACKS["prod"], "gpu-spot:training": [job]})
    return [line for line in settings.warnings() if "round trip" in line]


@pytest.mark.parametrize(
    ("changes", "option"),
    [
        ({}, "checkpoints: the job has no dataset, prepare or datasets"),
        ({"command": ["python3", "t.py", f"--data-dir={MOUNT}/imagenet"]}, "command: '--data-dir="),
        ({"command": ["python3", "t.py", "--train", f"{MOUNT}/imagenet"]}, "command: '/dltraining/"),
        (
            {"dataset": "s3://datasets/a/", "environment": {"DATA_ROOT": f"{MOUNT}/a"}},
            "environment.DATA_ROOT: '",
        ),
        (
            {"dataset": "s3://datasets/a/", "command": ["sh", "-c", "x", "--input=$GPU_SPOT_CHECKPOINTS/a"]},
            "command: '--input=",
        ),
    ],
)
def test_data_on_the_file_system_is_a_warning(changes: dict[str, Any], option: str) -> None:
    [line] = warnings(**changes)
    assert line.startswith(f"gpu-spot:training[0].{option}")
    assert "about 1 ms" in line
    assert "dataset, prepare or datasets" in line


@pytest.mark.parametrize(
    "changes",
    [
        {"dataset": "s3://datasets/a/"},
        {"prepare": PREPARE},
        {"datasets": [{"snapshot": "snap-0123456789abcdef0", "path": "/data/a"}]},
        {"checkpoints": "volume"},
        {"dataset": "s3://datasets/a/", "command": ["python3", "t.py", f"--resume={MOUNT}/step-1"]},
        {"dataset": "s3://datasets/a/", "command": ["python3", "t.py", "--metadata", "/tmp/x"]},
    ],
)
def test_data_on_volumes_is_no_warning(changes: dict[str, Any]) -> None:
    assert warnings(**changes) == []


ROOT = Path(__file__).resolve().parents[2]
DEV = refusals.STACKS["dev"]
CAPACITY = "gpu-spot:services/0/capacity"


def changed(path: str, value: Any) -> dict[str, Any]:
    """Return the dev configuration with ``value`` at a slash-separated path (None removes the key)."""
    return refusals.changed(DEV, {path: refusals.REMOVED if value is None else value})


def test_the_engines_json_text_reads_like_the_stack_file() -> None:
    as_text = {k: v if isinstance(v, str) else json.dumps(v) for k, v in DEV.items()}
    assert load_settings(as_text) == load_settings(DEV)


def test_a_number_with_a_fraction_may_be_text_as_pulumi_config_set_writes_it() -> None:
    for key in ("budget", "expectedHours"):
        number, text = (settings("dev", training(**{key: value})) for value in (1.5, "1.5"))
        assert text == number


def test_every_float_of_a_stack_file_may_be_text() -> None:
    lines = [line for file in SCHEMA.rglob("*.py") for line in file.read_text("utf-8").splitlines()]
    assert not [line for line in lines if re.match(r"    \w+: .*\bfloat\b", line) and "FROM_TEXT" not in line]


def test_each_error_is_a_line_of_its_own() -> None:
    raw = changed(f"{CAPACITY}/spotPercentage", 140)
    raw["gpu-spot:network"]["cidr"] = "nowhere"
    with pytest.raises(SettingsError) as caught:
        load_settings(raw)
    assert [re.split(":? ", line)[0] for line in str(caught.value).splitlines()] == [
        "gpu-spot:network.cidr",
        "gpu-spot:services[0].capacity.spotPercentage",
    ]


def test_a_region_that_is_none_is_one_error_and_not_one_for_its_zones() -> None:
    with pytest.raises(SettingsError) as caught:
        load_settings(changed("aws:region", "us-west"))
    assert str(caught.value).startswith("aws:region must match the pattern ")
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize("written", [30.5, "30.5"])
def test_a_number_may_be_text_where_the_cli_writes_it_so(written: float | str) -> None:
    capacity = load_settings(changed(f"{CAPACITY}/fallback", {"policyParameters": {"shortageCost": written}}))
    assert capacity.services[0].capacity.fallback.policy_parameters == {"shortageCost": 30.5}
    with pytest.raises(SettingsError, match=r"policyParameters\.shortageCost must be a number, not 'dear'"):
        load_settings(changed(f"{CAPACITY}/fallback", {"policyParameters": {"shortageCost": "dear"}}))


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
    declared = {
        key.removeprefix("gpu-spot:"): entry
        for key, entry in project["config"].items()
        if key != "pulumi:autonaming"
    }
    fields = {f.alias or name: f for name, f in Settings.model_fields.items() if name != "region"}
    assert set(declared) == set(fields)
    assert all(entry["description"] for entry in declared.values())
    defaults = {f"gpu-spot:{key}": entry["default"] for key, entry in declared.items() if "default" in entry}
    assert {key for key in fields if f"gpu-spot:{key}" not in defaults} == {
        key for key, field in fields.items() if field.is_required()
    }
    bare = {key: value for key, value in DEV.items() if key not in defaults}
    assert load_settings({**bare, **defaults}) == load_settings(bare)


def service() -> Service:
    return load_settings(
        yaml.safe_load((ROOT / "stacks" / "Pulumi.dev.yaml").read_text())["config"]
    ).services[0]


def written(config: GroupConfig) -> str:
    """Return the parameter that the component makes of what the program passes it."""
    component: Any = object.__new__(CapacityGroup)
    capacity = service().capacity
    component.__dict__ |= {
        "by_zone": False,
        "_args": SimpleNamespace(
            config=config,
            capacity=capacity,
            scope=SimpleNamespace(region="us-west-2"),
            subnet_ids={"us-west-2a": "subnet-1"},
            fallback=["a template"],
            block=None,
        ),
    }
    return contract.dumps(component._config("primary", "fallback"))


def test_what_the_program_passes_reaches_the_controller_whole() -> None:
    """Whatever a field's type, a value that is not its default comes through."""
    entry = service()
    config = group_config.build(
        entry.capacity,
        slots=entry.slots,
        drain_seconds=entry.drain_seconds,
        run="r1",
        deadline=1.5,
        dataset="d@1",
    )
    read = contract.parse(written(config))
    completed = {"primary", "fallback", "zones", "on_demand_prices", "own_prices", "by_zone"}
    for field in dataclasses.fields(GroupConfig):
        if field.name not in completed:
            assert getattr(read, field.name) == getattr(config, field.name), field.name
    assert (read.primary, read.fallback, read.zones) == ("primary", "fallback", ("us-west-2a",))
    assert read.drain_seconds == entry.drain_seconds
