"""The package as the engine runs it: a plugin process with GetSchema and Construct."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
import yaml
from pulumi.runtime.proto import errors_pb2, status_pb2

from tests.package.checked import EXAMPLE, package
from tests.package.engine import PROVIDER, STACK, Plugin, plugin

RESOURCES = yaml.safe_load(EXAMPLE.read_text("utf-8"))["resources"]


@pytest.fixture(scope="module")
def started() -> Iterator[Plugin]:
    with plugin() as one:
        yield one


def test_it_returns_its_schema(started: Plugin) -> None:
    assert json.loads(started.schema()) == package()


@pytest.mark.parametrize(("name", "preview"), [("ocr", True), ("circles", False)])
def test_it_constructs_the_components_of_the_example(name: str, preview: bool, started: Plugin) -> None:
    kind = RESOURCES[name]["type"].removeprefix("gpu-spot:")
    state = started.construct(kind, name, RESOURCES[name]["properties"], preview=preview)
    stack_name = RESOURCES[name]["properties"].get("stackName", f"pages-dev-{name}")
    assert state["stackName"] == stack_name
    outputs = package()["resources"][f"gpu-spot:index:{kind}"]
    assert set(outputs["required"]) <= set(state) <= set(outputs["properties"])
    component, *others = started.engine.registered
    assert (component.type, component.parent) == (f"gpu-spot:index:{kind}", STACK)
    # All resources are its children, and their names are unique among components.
    above = {one.parent.rpartition("::")[2] for one in others}
    assert above <= {name, *(one.name for one in others)}
    assert all(one.name.startswith(f"gpu-spot-{stack_name}-") for one in others)
    groups = {one.name for one in others if one.type == "aws:autoscaling/group:Group"}
    assert groups == {f"gpu-spot-{stack_name}-{name}-{side}" for side in ("primary", "fallback")}


def test_resources_and_lookups_use_the_components_provider(started: Plugin) -> None:
    given = RESOURCES["lab"]["properties"]
    started.construct("CapacityGroup", "lab", given, preview=True, providers={"aws": PROVIDER})
    assert {one.provider for one in started.engine.registered if one.custom} == {PROVIDER}
    assert {provider for _, provider in started.engine.lookups} == {PROVIDER}


def test_an_error_is_reported_at_its_property(started: Plugin) -> None:
    given = RESOURCES["lab"]["properties"]
    wrong = {**given, "capacity": {**given["capacity"], "taget": 3, "max": 0}}
    with pytest.raises(grpc.RpcError) as raised:
        started.construct("CapacityGroup", "lab", wrong)
    assert raised.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    [details] = [value for key, value in raised.value.trailing_metadata() if key == "grpc-status-details-bin"]
    errors = errors_pb2.InputPropertiesError()
    assert status_pb2.Status.FromString(details).details[0].Unpack(errors)
    reasons = {one.property_path: one.reason for one in errors.errors}
    assert reasons.keys() == {"capacity.taget", "capacity.max"}
    assert "did you mean target?" in reasons["capacity.taget"]
    assert reasons["capacity.max"] == "0, allowed: at least 1"


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (
            {"matrix": {"SEED": ["1", "2"]}},
            "circles.matrix: creates jobs with other names, allowed: in GpuSpot",
        ),
        ({"name": "squares"}, "circles.name: 'squares', allowed: none"),
    ],
)
def test_a_component_is_one_group_with_its_name(more: Any, message: str, started: Plugin) -> None:
    with pytest.raises(grpc.RpcError, match=re.escape(message)):
        started.construct("TrainingJob", "circles", {**RESOURCES["circles"]["properties"], **more})


def test_an_output_of_another_resource_is_rejected(started: Plugin) -> None:
    given: dict[str, Any] = {
        **RESOURCES["lab"]["properties"],
        "kmsKeyArn": "04da6b54-80e4-46f7-96ec-b56ff0331ba9",
    }
    with pytest.raises(grpc.RpcError, match=r"lab\.kmsKeyArn: an output of another resource"):
        started.construct("CapacityGroup", "lab", given, preview=True)
