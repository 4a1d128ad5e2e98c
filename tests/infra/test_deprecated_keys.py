"""Deprecated keys of a stack file: they work, with a warning, until the next major version."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.package import inputs
from infra.schema import Settings
from infra.settings import SettingsError, load_settings
from tests.apart import apart
from tests.infra import program
from tests.infra.declared import run
from tests.infra.test_ownership import differences

ROOT = Path(__file__).resolve().parents[2]
IMAGE = f"registry.example.org/ocr@sha256:{'0' * 64}"
RABBITMQ = {"kind": "rabbitmq", "instanceType": "mq.m7g.large"}
FLOOR = {"from": "08:00", "to": "18:00"}
ADMIN = {"role": "arn:aws:iam::123456789012:role/up"}
REACHED = {"allowedSources": ["10.40.0.0/16"]}

CASES = [
    ("services[0]", "saysReady", "reportsReadiness", True),
    ("services[0].queue", "tries", "maxDeliveries", 7),
    ("services[0].queue", "most", "maxLength", 9),
    ("services[0].queue", "oldestSeconds", "maxMessageAgeSeconds", 120),
    ("services[0].queue", "callers", "allowedSources", ["10.0.0.0/8"]),
    ("services[1].queue", "tries", "maxDeliveries", 7),
    ("services[1].queue", "oldestSeconds", "maxMessageAgeSeconds", 120),
    ("services[0].health", "mostAtOnce", "maxUnavailablePercent", 30),
    ("services[0].health", "stuckSeconds", "stallTimeoutSeconds", 70),
    ("services[0].health", "digest", "dailyReportHour", None),
    ("services[0].scaling.floors[0]", "least", "min", 2),
    ("services[0].capacity.fallback", "knobs", "policyParameters", {"shortageCost": 3}),
    ("network", "apartFrom", "nonOverlappingCidrs", ["10.250.0.0/16"]),
    ("sharedHosts[0]", "callers", "allowedSources", ["10.0.0.0/8"]),
    ("kubernetes", "own", "create", {**REACHED, "access": [{**ADMIN, "accessPolicy": "admin"}]}),
    ("kubernetes.create", "systemType", "systemInstanceType", "m7g.xlarge"),
    ("kubernetes.create.access[0]", "may", "accessPolicy", "admin"),
    ("monitoring", "standstillMinutes", "stallMinutes", 30),
]
WRONG: dict[str, Any] = {"digest": "seven", "standstillMinutes": 0, "most": -1, "may": "root"}


def config() -> dict[str, Any]:
    """A stack file that has all sections with deprecated keys, and none of these keys."""
    shared, dev, eks = (
        yaml.safe_load((ROOT / f"Pulumi.{name}.yaml").read_text("utf-8"))["config"]
        for name in ("shared", "dev", "eks")
    )
    service = {**dev["gpu-spot:services"][0], "image": IMAGE}
    service["capacity"]["fallback"] = {"enabled": True}
    hosts = shared["gpu-spot:sharedHosts"]
    del hosts[0]["allowedSources"]
    scaling = {"floors": [{**FLOOR, "min": 1}]}
    return {
        "aws:region": dev["aws:region"],
        "gpu-spot:network": dev["gpu-spot:network"],
        "gpu-spot:services": [
            {**copy.deepcopy(service), "queue": {**RABBITMQ}, "health": {}, "scaling": scaling},
            {**copy.deepcopy(service), "name": "second", "queue": {"kind": "sqs"}},
        ],
        "gpu-spot:sharedHosts": hosts,
        "gpu-spot:monitoring": {},
        "gpu-spot:kubernetes": {
            **eks["gpu-spot:kubernetes"],
            "create": {**REACHED, "access": [{**ADMIN, "accessPolicy": "admin"}]},
        },
    }


def with_keys(path: str, **keys: Any) -> dict[str, Any]:
    """Return the stack file with these keys in the section at ``path``, in place of their other names."""
    raw = config()
    [first, *rest] = re.findall(r"\w+", path)
    section = raw[f"gpu-spot:{first}"]
    for part in rest:
        section = section[int(part)] if part.isdigit() else section[part]
    for old, new in [
        (old, new) for place, old, new, _ in CASES if place == path and {old, new} & keys.keys()
    ]:
        section.pop(old, None)
        section.pop(new, None)
    section |= keys
    return raw


def load(raw: dict[str, Any]) -> tuple[Settings, list[str]]:
    warnings: list[str] = []
    return load_settings(raw, warnings.append), warnings


def test_the_table_has_every_deprecated_key() -> None:
    choices = [(Settings,), *inputs.models().values()]
    keys = {
        (model, old, new)
        for c in choices
        for model in c
        for old, new in inputs.deprecated_keys((model,)).items()
    }
    assert len(keys) == len({(path, old) for path, old, _, _ in CASES})
    assert {(old, new) for _, old, new in keys} == {(old, new) for _, old, new, _ in CASES}


def test_current_keys_have_no_warning() -> None:
    assert load(config())[1] == []


@pytest.mark.parametrize(("path", "old", "new", "value"), CASES)
def test_a_deprecated_key_means_the_same_and_has_a_warning(path: str, old: str, new: str, value: Any) -> None:
    settings, warnings = load(with_keys(path, **{old: value}))
    assert (settings, []) == load(with_keys(path, **{new: value}))
    assert warnings == [
        f"gpu-spot:{path}.{old}: deprecated key, use {new}; {old} is removed in the next major version"
    ]


@pytest.mark.parametrize(("path", "old", "new", "value"), CASES)
def test_both_names_of_a_key_are_an_error_that_names_both(path: str, old: str, new: str, value: Any) -> None:
    with pytest.raises(SettingsError) as caught:
        load_settings(with_keys(path, **{old: value, new: value}))
    assert str(caught.value) == (
        f"gpu-spot:{path}.{old}: deprecated name of {new}, which is given as well, allowed: {new} alone"
    )


@pytest.mark.parametrize(("path", "old", "new"), [case[:3] for case in CASES if case[1] in WRONG])
def test_an_error_names_the_key_as_it_was_written(path: str, old: str, new: str) -> None:
    for key in (old, new):
        with pytest.raises(SettingsError) as caught:
            load_settings(with_keys(path, **{key: WRONG[old]}))
        assert str(caught.value).startswith(f"gpu-spot:{path}.{key}: ")


def test_a_deprecated_key_in_a_deprecated_section_has_its_path_as_it_was_written() -> None:
    create = {**REACHED, "access": [{**ADMIN, "may": "admin"}], "systemType": "m7g.xlarge"}
    _, warnings = load(with_keys("kubernetes", own=create))
    assert [line.partition(": ")[0] for line in warnings] == [
        "gpu-spot:kubernetes.own",
        "gpu-spot:kubernetes.own.access[0].may",
        "gpu-spot:kubernetes.own.systemType",
    ]
    with pytest.raises(SettingsError, match=r"^gpu-spot:kubernetes\.own\.systemType: "):
        load(with_keys("kubernetes", own={**create, "systemType": "g5.xlarge"}))


def test_a_preview_warns_and_declares_the_same(tmp_path: Path) -> None:
    files = {}
    for key in ("standstillMinutes", "stallMinutes"):
        raw = yaml.safe_load((ROOT / "Pulumi.dev.yaml").read_text("utf-8"))
        raw["config"]["gpu-spot:monitoring"] = {key: 30}
        files[key] = tmp_path / f"Pulumi.{key}.yaml"
        files[key].write_text(yaml.safe_dump(raw), "utf-8")
    old, new = (run("known", file) for file in files.values())
    assert old.identities() == new.identities()
    assert differences(old, new) == {}
    assert old.exports == new.exports
    warning = "gpu-spot:monitoring.standstillMinutes: deprecated key, use stallMinutes"
    assert warning in apart(program.warned, "unknown", "dev", files["standstillMinutes"])
    assert warning not in apart(program.warned, "unknown", "dev", files["stallMinutes"])
