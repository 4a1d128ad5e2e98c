"""Stack files are read as the engine reads them; what is wrong in them is one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from pulumi_on_moto import LocalCloudError, load
from pulumi_on_moto.mapping.base import DEFAULT_NAME
from pulumi_on_moto.program.provision import name_pattern

SAMPLE = Path(__file__).with_name("sample")


def test_values_defaults_and_encoding() -> None:
    config = load(SAMPLE, "dev")
    assert (config.project, config.region) == ("sample", "us-west-2")
    assert config.values["sample:size"] == 6
    assert config.encoded()["sample:size"] == "6"
    assert config.encoded()["sample:services"] == '[{"name": "inference", "capacity": {"target": 2}}]'


def test_overrides_by_path() -> None:
    overrides = {"services[0].capacity.target": 4, "size": 9, "aws:region": "eu-west-1"}
    config = load(SAMPLE, "dev", overrides)
    assert config.values["sample:services"][0]["capacity"]["target"] == 4
    assert config.values["sample:size"] == 9
    assert config.region == "eu-west-1"
    assert load(SAMPLE, "dev").values["sample:size"] == 6


def test_an_override_leaves_what_an_alias_repeats_in_other_keys(tmp_path: Path) -> None:
    (tmp_path / "Pulumi.yaml").write_text("name: sample\nruntime: python\n")
    text = "config:\n  sample:services:\n    - capacity: &one { target: 1 }\n    - capacity: *one\n"
    (tmp_path / "Pulumi.dev.yaml").write_text(text)
    services = load(tmp_path, "dev", {"services[1].capacity.target": 4}).values["sample:services"]
    assert [service["capacity"]["target"] for service in services] == [1, 4]


@pytest.mark.parametrize(
    ("stack", "overrides", "message"),
    [
        ("prod", {}, "stack 'prod': no file Pulumi.prod.yaml; stacks here: broken, dev, sealed"),
        ("sealed", {}, "Pulumi.sealed.yaml: services[0].token is a secret"),
        ("broken", {}, "Pulumi.broken.yaml: sample:services must be a value of type array, not 'many'"),
        ("dev", {"services[3].name": "x"}, "override 'services[3].name': the stack has no 3 there"),
        ("dev", {"services[0].nowhere.deep": 1}, "the stack has no 'nowhere' there"),
        ("dev", {"size": "big"}, "sample:size must be a value of type integer, not 'big'"),
        ("dev", {"": 1}, "must be a path such as services[0].capacity.target"),
    ],
)
def test_wrong_configuration_is_one_line(stack: str, overrides: dict[str, object], message: str) -> None:
    with pytest.raises(LocalCloudError) as caught:
        load(SAMPLE, stack, overrides)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_malformed_yaml_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "Pulumi.yaml").write_text("name: small\n")
    (tmp_path / "Pulumi.dev.yaml").write_text("config: [\n")
    with pytest.raises(LocalCloudError, match=r"Pulumi\.dev\.yaml is not valid YAML") as caught:
        load(tmp_path, "dev")
    assert "\n" not in str(caught.value)


def read(folder: Path, config: str) -> dict[str, object]:
    (folder / "Pulumi.yaml").write_text("name: small\n")
    (folder / "Pulumi.dev.yaml").write_text(f"config:\n{config}")
    return dict(load(folder, "dev").values)


def test_a_key_that_occurs_twice_is_refused(tmp_path: Path) -> None:
    # A merge key is not a second one, also where what it merges is read later, deeper in the file.
    deeper = "  a: &x {b: 1}\n  d: {e: {f: &y {<<: *x, b: 2}}}\n  c: {<<: *y}\n"
    for merged in ("  a: &x {b: 1}\n  c: {<<: *x, b: 2}\n", deeper):
        assert read(tmp_path, merged)["small:c"] == {"b": 2}
    for text, key in (
        ("  a: 1\n  b: 2\n  a: 3\n", "'a'"),
        ("  a:\n    <<: {b: 1}\n    <<: {c: 1}\n", "'<<'"),
    ):
        with pytest.raises(LocalCloudError, match=rf"key {key} occurs in lines \d and 4; remove one of them"):
            read(tmp_path, text)
    with pytest.raises(LocalCloudError, match="key 'b' occurs in lines 2 and 2"):
        read(tmp_path, "  a: {b: 1, b: 2}\n")


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        *((word, word) for word in ("on", "Off", "yes", "No", "y", "12:30", "1:30:00", "=", "1.2.3")),
        *(("true", True), ("FALSE", False), ("~", None), ("Null", None), ("1_000", 1000), ("010", 8)),
        *(("0o10", 8), ("0x1F", 31), ("0b11", 3), ("0900", 900), ("1e3", 1000), ("1.5e3", 1500)),
        *(
            ("4.0", 4),
            (".5", 0.5),
            ("-1e-3", -0.001),
            ("1.10", 1.1),
            ("'1e3'", "1e3"),
            ("2026-13", "2026-13"),
        ),
    ],
)
def test_a_plain_value_is_what_the_engine_makes_of_it(tmp_path: Path, written: str, meant: object) -> None:
    """Meanings are those of ``workspace.LoadProjectStackBytes`` of the engine's SDK 3.260.0, run on each."""
    found = read(tmp_path, f"  a: [{written}]\n")["small:a"]
    assert repr(found) == repr([meant])


@pytest.mark.parametrize("time", ["2026-12-01", "2026-12-01T10:00:00Z", "2026-12-01 10:00:00"])
def test_a_time_is_refused_because_the_engine_rewrites_it(tmp_path: Path, time: str) -> None:
    with pytest.raises(
        LocalCloudError, match=f"{time} in line 2 is a time, which the engine rewrites; quote it"
    ):
        read(tmp_path, f"  a: {time}\n")
    assert read(tmp_path, f"  a: '{time}'\n")["small:a"] == time


def test_missing_project_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(LocalCloudError, match=r"no Pulumi\.yaml in"):
        load(tmp_path, "dev")


def test_generated_names_follow_the_engines_pattern() -> None:
    def pattern(naming: str) -> str:
        return name_pattern(load(SAMPLE, "dev", {"pulumi:autonaming": naming}))

    assert name_pattern(load(SAMPLE, "dev")) == DEFAULT_NAME
    of_aws = '{"providers": {"aws": {"pattern": "x-${stack}-${name}-${hex(7)}"}}}'
    assert pattern(of_aws) == "x-dev-${name}-${hex(7)}"
    assert pattern('{"pattern": "${project}.${name}"}') == "sample.${name}"
    assert pattern('{"providers": {"kubernetes": {"mode": "verbatim"}}}') == DEFAULT_NAME
    for wrong in (
        '{"mode": "verbatim"}',
        '{"pattern": "${uuid}"}',
        '{"providers": {"aws": {"resources": {}}}}',
    ):
        with pytest.raises(LocalCloudError, match="must be a pattern with"):
            pattern(wrong)
