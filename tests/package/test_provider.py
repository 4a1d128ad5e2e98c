"""The package as the engine runs it: a plugin process with GetSchema and Construct."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc
import pytest
import yaml
from google.protobuf import empty_pb2, struct_pb2
from pulumi.runtime import mocks
from pulumi.runtime.proto import (
    engine_pb2_grpc,
    errors_pb2,
    provider_pb2,
    provider_pb2_grpc,
    resource_pb2,
    resource_pb2_grpc,
    status_pb2,
)

from tests.infra.program import ROOT, Recorder
from tests.package.checked import EXAMPLE, package
from tests.waiting import TIMEOUT_SECONDS

REGION = {"aws:index/getRegion:getRegion": {"region": "us-west-2", "id": "us-west-2"}}
PROVIDER = "urn:pulumi:dev::pages::pulumi:providers:aws::west::0c0ffee0"
STACK = "urn:pulumi:dev::pages::pulumi:pulumi:Stack::pages-dev"


class Engine(resource_pb2_grpc.ResourceMonitorServicer, engine_pb2_grpc.EngineServicer):
    """Both services of the engine. In a preview no resource has an id or an output."""

    def __init__(self) -> None:
        self.known = True
        self.registered: list[Any] = []
        self.lookups: list[tuple[str, str]] = []
        self.messages: list[str] = []
        self._recorder = Recorder(known=True)

    # Their names are the protocol's.
    def RegisterResource(self, request: Any, context: Any) -> Any:  # noqa: N802
        self.registered.append(request)
        above = f"{request.parent.split('::')[2]}$" if request.parent else ""
        urn = f"urn:pulumi:dev::pages::{above}{request.type}::{request.name}"
        answer = resource_pb2.RegisterResourceResponse(urn=urn, object=request.object)
        if self.known and request.custom:
            made = mocks.MockResourceArgs(request.type, request.name, {})
            answer.id, computed = self._recorder.new_resource(made)
            answer.object.update(computed)
        return answer

    def RegisterResourceOutputs(self, request: Any, context: Any) -> Any:  # noqa: N802
        return empty_pb2.Empty()

    def Invoke(self, request: Any, context: Any) -> Any:  # noqa: N802
        found = struct_pb2.Struct()
        if request.tok == "pulumi:pulumi:getResource":  # the provider that the component was given
            found.update({"urn": request.args["urn"], "id": PROVIDER.rpartition("::")[2], "state": {}})
            return resource_pb2.ResourceInvokeResponse(**{"return": found})
        self.lookups.append((request.tok, request.provider))
        if request.tok in REGION:
            found.update(REGION[request.tok])
        else:
            given = {key: value for key, value in request.args.items() if not key.startswith("filters")}
            asked = mocks.MockCallArgs(request.tok, {**given, **_filters(request.args)}, request.provider)
            found.update(self._recorder.call(asked)[0])
        return resource_pb2.ResourceInvokeResponse(**{"return": found})

    def SupportsFeature(self, request: Any, context: Any) -> Any:  # noqa: N802
        return resource_pb2.SupportsFeatureResponse(hasSupport=True)

    def Log(self, request: Any, context: Any) -> Any:  # noqa: N802
        self.messages.append(request.message)
        return empty_pb2.Empty()


def _filters(args: Any) -> dict[str, Any]:
    if "filters" not in args:
        return {}
    return {"filters": [{"name": one["name"], "values": [*one["values"]]} for one in args["filters"]]}


class Plugin:
    """The package as a plugin process, called like the engine calls it."""

    def __init__(self, engine: Engine, address: str, channel: grpc.Channel) -> None:
        self.engine, self._address = engine, address
        self._provider = provider_pb2_grpc.ResourceProviderStub(channel)

    def schema(self) -> str:
        return str(self._provider.GetSchema(provider_pb2.GetSchemaRequest(version=0)).schema)

    def construct(
        self, kind: str, name: str, inputs: Mapping[str, Any], *, preview: bool = False, **more: Any
    ) -> dict[str, Any]:
        """Return the outputs of a component; its resources are in ``engine.registered``."""
        self.engine.known, self.engine.registered, self.engine.lookups = not preview, [], []
        given = struct_pb2.Struct()
        given.update(dict(inputs))
        request = provider_pb2.ConstructRequest(
            project="pages",
            stack="dev",
            parallel=4,
            dryRun=preview,
            monitorEndpoint=self._address,
            type=f"gpu-spot:index:{kind}",
            name=name,
            parent=STACK,
            inputs=given,
            **more,
        )
        return dict(self._provider.Construct(request, timeout=TIMEOUT_SECONDS).state)


@contextmanager
def plugin() -> Iterator[Plugin]:
    """Start the package by the path of its directory, and stop it afterwards."""
    engine = Engine()
    server = grpc.server(ThreadPoolExecutor(8))
    resource_pb2_grpc.add_ResourceMonitorServicer_to_server(engine, server)
    engine_pb2_grpc.add_EngineServicer_to_server(engine, server)
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    command = [sys.executable, "-u", str(ROOT / "infra" / "package"), address]
    with subprocess.Popen(command, cwd="/", stdout=subprocess.PIPE) as started:
        try:
            assert started.stdout is not None
            port = int(started.stdout.readline())
            with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
                yield Plugin(engine, address, channel)
        finally:
            started.terminate()
            server.stop(None).wait()


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
    assert reasons["capacity.max"] == "must be at least 1, not 0."


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (
            {"matrix": {"SEED": ["1", "2"]}},
            "circles.matrix creates jobs with other names; use the component GpuSpot for it",
        ),
        ({"name": "squares"}, "circles.name is 'squares'; remove it"),
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
    with pytest.raises(grpc.RpcError, match=r"lab\.kmsKeyArn is an output of another resource"):
        started.construct("CapacityGroup", "lab", given, preview=True)
