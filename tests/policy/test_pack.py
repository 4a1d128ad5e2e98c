"""The pack as the engine runs it: a process that tells its port, and the analyzer's calls over gRPC."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import empty_pb2, struct_pb2
from pulumi.runtime.proto import analyzer_pb2, analyzer_pb2_grpc
from pulumi_policy.proxy import UNKNOWN_STRING_VALUE

from policy.rules import RULES
from policy.rules.model import Subject
from tests.policy.cases import KEEPING, VIOLATING, template

ROOT = Path(__file__).resolve().parents[2]
BY_RESOURCE = [rule.name for rule in RULES if rule.check is not None and rule.name != "image-age"]
BY_STACK = [rule.name for rule in RULES if rule.check_stack is not None]


@pytest.fixture(scope="module")
def analyzer() -> Iterator[Any]:
    # The engine starts the folder by its path, wherever it stands itself, and unbuffered: the SDK writes the
    # port and does not flush.
    command = [sys.executable, "-u", str(ROOT / "policy")]
    with subprocess.Popen(command, cwd="/", stdout=subprocess.PIPE) as served:
        try:
            assert served.stdout is not None
            port = int(served.stdout.readline())
            with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
                yield analyzer_pb2_grpc.AnalyzerStub(channel)
        finally:
            served.terminate()


def configured(analyzer: Any, policy: str, settings: dict[str, Any]) -> None:
    """Set a policy's settings and turn all others off, as ``--policy-pack-config`` does."""
    request = analyzer_pb2.ConfigureAnalyzerRequest()
    for rule in RULES:
        level = analyzer_pb2.MANDATORY if rule.name == policy else analyzer_pb2.DISABLED
        given = struct_pb2.Struct()
        if rule.name == policy:
            given.update(settings)
        request.policyConfig[rule.name].CopyFrom(
            analyzer_pb2.PolicyConfig(enforcementLevel=level, properties=given)
        )
    analyzer.Configure(request)


def told(one: Subject) -> dict[str, Any]:
    properties = struct_pb2.Struct()
    properties.update(dict(one.inputs))
    provider_inputs = struct_pb2.Struct()
    provider_inputs.update({"region": one.region})
    provider = analyzer_pb2.AnalyzerProviderResource(type="pulumi:providers:aws", properties=provider_inputs)
    options = analyzer_pb2.AnalyzerResourceOptions(protect=one.protected)
    return {
        "type": one.type,
        "properties": properties,
        "urn": one.urn,
        "name": one.name,
        "options": options,
        "provider": provider,
    }


def by_resource(analyzer: Any, subjects: list[Subject]) -> list[Any]:
    answers = [analyzer.Analyze(analyzer_pb2.AnalyzeRequest(**told(one))) for one in subjects]
    return [diagnostic for answer in answers for diagnostic in answer.diagnostics]


def by_stack(analyzer: Any, subjects: list[Subject]) -> list[Any]:
    resources = [analyzer_pb2.AnalyzerResource(**told(one)) for one in subjects]
    answer = analyzer.AnalyzeStack(analyzer_pb2.AnalyzeStackRequest(resources=resources))
    return list(answer.diagnostics)


def test_it_tells_its_policies_with_level_and_settings(analyzer: Any) -> None:
    info = analyzer.GetAnalyzerInfo(empty_pb2.Empty())
    assert info.name == "gpu-spot"
    levels = {
        one.name: analyzer_pb2.EnforcementLevel.Name(one.enforcementLevel).lower() for one in info.policies
    }
    assert levels == {rule.name: rule.level for rule in RULES}
    settings = {one.name: sorted(one.configSchema.properties.keys()) for one in info.policies}
    assert settings == {rule.name: sorted(rule.settings) for rule in RULES}


@pytest.mark.parametrize("name", BY_RESOURCE)
def test_a_violating_program_is_told_and_a_keeping_one_passes(name: str, analyzer: Any) -> None:
    for settings, subjects in VIOLATING[name]:
        configured(analyzer, name, settings)
        diagnostics = by_resource(analyzer, subjects)
        assert {one.policyName for one in diagnostics} == {name}
        assert {one.enforcementLevel for one in diagnostics} == {analyzer_pb2.MANDATORY}
        assert any(one.message.split("\n")[-1].startswith(subjects[0].name) for one in diagnostics)
    for settings, subjects in KEEPING[name]:
        configured(analyzer, name, settings)
        assert not by_resource(analyzer, subjects)


@pytest.mark.parametrize("name", BY_STACK)
def test_a_violating_stack_is_told_and_a_keeping_one_passes(name: str, analyzer: Any) -> None:
    for settings, subjects in VIOLATING[name]:
        configured(analyzer, name, settings)
        assert {one.policyName for one in by_stack(analyzer, subjects)} == {name}
    for settings, subjects in KEEPING[name]:
        configured(analyzer, name, settings)
        assert not by_stack(analyzer, subjects)


def test_what_is_not_known_yet_hides_nothing_beside_it(analyzer: Any) -> None:
    configured(analyzer, "encrypted", {})
    disks = [
        {"deviceName": UNKNOWN_STRING_VALUE, "ebs": {"encrypted": UNKNOWN_STRING_VALUE}},
        {"deviceName": "/dev/sdk", "ebs": {"encrypted": "false"}},
    ]
    [diagnostic] = by_resource(analyzer, [template(blockDeviceMappings=disks, imageId=UNKNOWN_STRING_VALUE)])
    assert "/dev/sdk is not encrypted" in diagnostic.message
