"""The pack as the engine runs it: a process that prints its port and serves the analyzer's gRPC calls."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import empty_pb2, struct_pb2
from moto.moto_server.threaded_moto_server import ThreadedMotoServer
from pulumi.runtime.proto import analyzer_pb2, analyzer_pb2_grpc
from pulumi_policy.proxy import UNKNOWN_STRING_VALUE

from policy.rules import RULES
from policy.rules.model import Subject
from tests.policy.cases import COMPLIANT, VIOLATING, template

ROOT = Path(__file__).resolve().parents[2]
BY_RESOURCE = [rule.name for rule in RULES if rule.check is not None and rule.name != "image-age"]
BY_STACK = [rule.name for rule in RULES if rule.check_stack is not None]


@pytest.fixture(scope="module")
def analyzer() -> Iterator[Any]:
    # The engine starts the directory by its path, from any directory, and unbuffered: the SDK prints the port
    # without a flush.
    command = [sys.executable, "-u", str(ROOT / "policy")]
    account = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    account.start()
    host, aws_port = account.get_host_and_port()
    keys = {"AWS_ACCESS_KEY_ID": "own", "AWS_SECRET_ACCESS_KEY": "own"}
    environment = os.environ | keys | {"AWS_ENDPOINT_URL": f"http://{host}:{aws_port}"}
    with subprocess.Popen(command, cwd="/", stdout=subprocess.PIPE, env=environment) as served:
        try:
            assert served.stdout is not None
            port = int(served.stdout.readline())
            with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
                yield analyzer_pb2_grpc.AnalyzerStub(channel)
        finally:
            served.terminate()
            account.stop()


def configured(analyzer: Any, policy: str, settings: dict[str, Any]) -> None:
    """Set a policy's settings and turn all others off, as ``--policy-pack-config`` does."""
    request = analyzer_pb2.ConfigureAnalyzerRequest()
    for rule in RULES:
        level = analyzer_pb2.MANDATORY if rule.name == policy else analyzer_pb2.DISABLED
        properties = struct_pb2.Struct()
        if rule.name == policy:
            properties.update(settings)
        request.policyConfig[rule.name].CopyFrom(
            analyzer_pb2.PolicyConfig(enforcementLevel=level, properties=properties)
        )
    analyzer.Configure(request)


def to_request(subject: Subject) -> dict[str, Any]:
    properties = struct_pb2.Struct()
    properties.update(dict(subject.inputs))
    provider_inputs = struct_pb2.Struct()
    provider_inputs.update({"region": subject.region})
    provider = analyzer_pb2.AnalyzerProviderResource(type="pulumi:providers:aws", properties=provider_inputs)
    options = analyzer_pb2.AnalyzerResourceOptions(protect=subject.protected)
    return {
        "type": subject.type,
        "properties": properties,
        "urn": subject.urn,
        "name": subject.name,
        "options": options,
        "provider": provider,
    }


def by_resource(analyzer: Any, subjects: list[Subject]) -> list[Any]:
    responses = [analyzer.Analyze(analyzer_pb2.AnalyzeRequest(**to_request(s))) for s in subjects]
    return [diagnostic for response in responses for diagnostic in response.diagnostics]


def by_stack(analyzer: Any, subjects: list[Subject]) -> list[Any]:
    resources = [analyzer_pb2.AnalyzerResource(**to_request(s)) for s in subjects]
    response = analyzer.AnalyzeStack(analyzer_pb2.AnalyzeStackRequest(resources=resources))
    return list(response.diagnostics)


def test_the_pack_lists_its_policies_with_level_and_settings(analyzer: Any) -> None:
    info = analyzer.GetAnalyzerInfo(empty_pb2.Empty())
    assert info.name == "gpu-spot"
    levels = {
        policy.name: analyzer_pb2.EnforcementLevel.Name(policy.enforcementLevel).lower()
        for policy in info.policies
    }
    assert levels == {rule.name: rule.level for rule in RULES}
    settings = {policy.name: sorted(policy.configSchema.properties.keys()) for policy in info.policies}
    assert settings == {rule.name: sorted(rule.settings) for rule in RULES}


@pytest.mark.parametrize("name", BY_RESOURCE)
def test_a_violation_is_reported_and_a_compliant_program_passes(name: str, analyzer: Any) -> None:
    for settings, subjects in VIOLATING[name]:
        configured(analyzer, name, settings)
        diagnostics = by_resource(analyzer, subjects)
        assert {diagnostic.policyName for diagnostic in diagnostics} == {name}
        assert {diagnostic.enforcementLevel for diagnostic in diagnostics} == {analyzer_pb2.MANDATORY}
        assert any(d.message.split("\n")[-1].startswith(subjects[0].name) for d in diagnostics)
    for settings, subjects in COMPLIANT[name]:
        configured(analyzer, name, settings)
        assert not by_resource(analyzer, subjects)


@pytest.mark.parametrize("name", BY_STACK)
def test_a_violation_of_a_stack_is_reported_and_a_compliant_stack_passes(name: str, analyzer: Any) -> None:
    for settings, subjects in VIOLATING[name]:
        configured(analyzer, name, settings)
        assert {diagnostic.policyName for diagnostic in by_stack(analyzer, subjects)} == {name}
    for settings, subjects in COMPLIANT[name]:
        configured(analyzer, name, settings)
        assert not by_stack(analyzer, subjects)


def test_an_unknown_value_does_not_hide_other_violations(analyzer: Any) -> None:
    configured(analyzer, "encrypted", {})
    disks = [
        {"deviceName": UNKNOWN_STRING_VALUE, "ebs": {"encrypted": UNKNOWN_STRING_VALUE}},
        {"deviceName": "/dev/sdk", "ebs": {"encrypted": "false"}},
    ]
    [diagnostic] = by_resource(analyzer, [template(blockDeviceMappings=disks, imageId=UNKNOWN_STRING_VALUE)])
    assert "/dev/sdk must be encrypted" in diagnostic.message
