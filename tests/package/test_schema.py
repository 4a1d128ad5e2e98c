"""The package's schema is derived from the models, and the example conforms to it."""

from __future__ import annotations

import copy
import re
import tomllib
from typing import Any

import pulumi
import pytest
import yaml

from contracts.agent.version import VERSION
from infra.package import inputs
from infra.schema import Settings
from infra.settings import SettingsError, load_settings
from tests.package.checked import EXAMPLE, ROOT, of_inputs, package, problems

STACK_FILES = sorted((ROOT / "stacks").glob("Pulumi.*.yaml"))


def example() -> dict[str, Any]:
    program: dict[str, Any] = yaml.safe_load(EXAMPLE.read_text("utf-8"))
    return program


def test_it_is_the_package_of_this_version() -> None:
    assert package()["version"] == VERSION
    assert tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"] == VERSION
    kinds = ["CapacityGroup", "GpuSpot", "Service", "TrainingJob"]
    assert sorted(package()["resources"]) == [f"gpu-spot:index:{kind}" for kind in kinds]


def test_every_key_of_every_model_is_in_it_and_required_if_it_has_no_default() -> None:
    models = inputs.models()
    assert sorted(package()["types"]) == sorted(f"gpu-spot:index:{name}" for name in models)
    for name, choice in models.items():
        made = package()["types"][f"gpu-spot:index:{name}"]
        fields = [{f.alias or n: f for n, f in one.model_fields.items()} for one in choice]
        assert set(made["properties"]) == set().union(*fields)
        always = {key for key in fields[0] if all(key in one and one[key].is_required() for one in fields)}
        assert set(made.get("required", [])) == always
        assert all(one["description"] for one in made["properties"].values())


@pytest.mark.parametrize("path", STACK_FILES, ids=lambda path: path.stem)
def test_the_whole_component_accepts_a_shipped_stack_file(path: Any) -> None:
    raw = yaml.safe_load(path.read_text("utf-8"))["config"]
    given = {key.removeprefix("gpu-spot:"): one for key, one in raw.items() if key.startswith("gpu-spot:")}
    assert of_inputs("gpu-spot:index:GpuSpot", given) == []
    region = raw["aws:region"]
    # The engine's protocol makes a float of every number.
    assert inputs.load_component_settings(region, inputs.to_plain(_floats(given))) == load_settings(raw)


def _floats(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _floats(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_floats(one) for one in value]
    return float(value) if type(value) is int else value


def test_the_example_keeps_to_the_schema() -> None:
    assert list(problems(example())) == []


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("lab", "properties", "capacity", "instanceType"), ["g5.xlarge"], "'instanceType' was unexpected"),
        (("ocr", "properties", "capacity", "max"), "twelve", "'twelve' is not of type 'integer'"),
        (("circles", "properties", "revision"), None, "'revision' is a required property"),
        (("ocr", "type"), "gpu-spot:Services", "unknown type gpu-spot:Services"),
        (("ocr", "properties", "image"), "${lab.primery}", "${lab.primery} is not an output"),
    ],
)
def test_a_program_that_breaks_the_schema_is_reported(
    path: tuple[str, ...], value: Any, message: str
) -> None:
    program = copy.deepcopy(example())
    *parents, last = path
    section = program["resources"]
    for key in parents:
        section = section[key]
    if value is None:
        del section[last]
    else:
        section[last] = value
    assert any(message in problem for problem in problems(program))


def test_an_error_has_its_path_in_the_component() -> None:
    given = {**example()["resources"]["lab"]["properties"], "name": "lab"}
    given["capacity"]["target"] = -1
    with pytest.raises(
        SettingsError, match=re.escape("capacity.target must be at least 0, not -1")
    ) as raised:
        inputs.load_component_settings("us-west-2", given, "services")
    assert str(raised.value).startswith("capacity")


def test_unknown_values_are_rejected() -> None:
    with pytest.raises(SettingsError, match=r"^network\.zones\[1\] is an output of another resource"):
        inputs.to_plain({"network": {"zones": ["us-west-2a", pulumi.Output.from_input("us-west-2b")]}})


def test_the_plugin_has_the_checkouts_environment_or_installs_the_lock() -> None:
    folder = ROOT / "infra" / "package"
    options = yaml.safe_load((folder / "PulumiPlugin.yaml").read_text("utf-8"))["runtime"]["options"]
    assert (folder / options["virtualenv"]).resolve() == ROOT / ".venv"
    [line] = re.findall(r"^-r (.*)$", (folder / "requirements.txt").read_text("utf-8"), re.M)
    assert (folder / line).resolve() == ROOT / "requirements.lock"


def test_a_component_of_one_entry_has_the_keys_of_its_model_and_the_shared_keys() -> None:
    for name, entries in (("Service", "services"), ("TrainingJob", "training")):
        keys = set(package()["resources"][f"gpu-spot:index:{name}"]["inputProperties"])
        model = Settings.model_fields[entries].annotation.__args__[0]  # type: ignore[union-attr]
        entry = {field.alias or key for key, field in model.model_fields.items()}
        assert not entry & set(inputs.SHARED)
        assert keys == (entry - {"name", "runsOn", "nodes"}) | {*inputs.SHARED, "stackName"}
