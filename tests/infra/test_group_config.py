"""A setting of the controller: from the stack file through component and parameter to who decides."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from contracts.group import config as contract
from contracts.group.config import GroupConfig
from contracts.stored import stored
from infra.components.capacity.capacity_group import CapacityGroup
from infra.program import group_config
from infra.schema import Service
from infra.settings import load_settings
from lambdas.aws import settings
from lambdas.core.model import Group

ROOT = Path(__file__).resolve().parents[2]


def service() -> Service:
    """The first service of the stack ``dev``."""
    return load_settings(yaml.safe_load((ROOT / "Pulumi.dev.yaml").read_text())["config"]).services[0]


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


def with_field(cls: type[Any], name: str, default: int) -> type[Any]:
    """Return a dataclass as it is with one field more."""
    return dataclasses.make_dataclass(
        cls.__name__, [(name, int, default)], bases=(cls,), frozen=True, slots=True, kw_only=True
    )


def test_a_new_setting_stands_in_the_schema_the_contract_and_its_user(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """``rootVolumeGiB`` is no setting of the controller; here it becomes one."""
    config = stored(is_open=True, has_defaults=True)(with_field(GroupConfig, "root_volume_gib", 0))
    for module in (contract, group_config, settings):
        monkeypatch.setattr(module, "GroupConfig", config)
    monkeypatch.setattr(settings, "Group", with_field(Group, "root_volume_gib", 0))
    entry = service()
    text = written(group_config.build(entry, slots=entry.slots))
    read: Any = settings.parse("inference", {"config": text, "target": "1"})
    assert entry.capacity.root_volume_gib > 0
    assert read.config.root_volume_gib == entry.capacity.root_volume_gib
    assert read.group.root_volume_gib == entry.capacity.root_volume_gib


def test_what_the_program_passes_reaches_the_controller_whole() -> None:
    """Whatever a field's type, a value that is not its default comes through."""
    entry = service()
    config = group_config.build(entry, slots=entry.slots, run="r1", deadline=1.5, dataset="d@1")
    read = settings.parse("inference", {"config": written(config), "target": "1"}).config
    completed = {"primary", "fallback", "zones", "on_demand_prices", "own_prices", "by_zone"}
    for field in dataclasses.fields(GroupConfig):
        if field.name not in completed:
            assert getattr(read, field.name) == getattr(config, field.name), field.name
    assert (read.primary, read.fallback, read.zones) == ("primary", "fallback", ("us-west-2a",))
    assert read.drain_seconds == entry.drain_seconds
