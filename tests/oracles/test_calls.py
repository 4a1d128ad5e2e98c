"""Calls to AWS are validated against botocore's models in every kind of process that tests use.

A patch puts wrong parameters into calls of the real code. The validation itself is tested in pulumi_on_moto.
"""

from __future__ import annotations

import contextlib
import io
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import boto3
import pytest
from botocore.client import BaseClient
from botocore.exceptions import ClientError

from gpu_spot import cli
from pulumi_on_moto.emulator import sandbox
from pulumi_on_moto.errors import LocalCloudError
from pulumi_on_moto.program.deployment import deploy
from tests import models
from tests.apart import apart
from tests.e2e.world import REPOSITORY, living, load, small
from tests.fakes.aws import FakeAws
from tests.infra.booting import Machine
from tests.node.metadata import MetadataServer


@contextlib.contextmanager
def with_wrong_parameters(operation: str, **wrong: Any) -> Iterator[None]:
    """Put wrong values into every call of an operation."""
    send = BaseClient._make_api_call  # type: ignore[attr-defined]

    def spoil(client: BaseClient, name: str, params: dict[str, Any]) -> Any:
        return send(client, name, params | wrong if name == operation else params)

    with mock.patch.object(BaseClient, "_make_api_call", spoil):
        yield


def ask(client: Any) -> None:
    """Make an invalid call and suppress its error."""
    with contextlib.suppress(ClientError):
        client.describe_parameters(MaxResults=51)


def test_calls_of_a_plain_test_are_seen() -> None:
    with pytest.raises(AssertionError, match="Value 51 at 'MaxResults'"), models.moto():
        ask(boto3.client("ssm", region_name="us-west-2"))


def test_moto_runs_once_in_a_process() -> None:
    with models.moto(), pytest.raises(RuntimeError, match="end it first"), models.moto():
        pass
    with sandbox("us-west-2"), pytest.raises(RuntimeError, match="end it first"), models.moto():
        pass


def test_calls_of_a_double_are_seen() -> None:
    client = FakeAws().client("ec2")
    with pytest.raises(AssertionError, match="Value 'never' at 'ExcessCapacityTerminationPolicy'"):
        client.modify_spot_fleet_request(SpotFleetRequestId="sfr-1", ExcessCapacityTerminationPolicy="never")
    with pytest.raises(AssertionError, match="Unknown parameter"):
        client.terminate_instances(Instances=[])
    with pytest.raises(AssertionError, match="Missing required parameter"):
        list(client.get_paginator("describe_spot_fleet_instances").paginate())


def test_calls_of_the_boot_script_are_seen(tmp_path: Path) -> None:
    server = MetadataServer()
    script = tmp_path / "wrong.sh"
    metric = "--namespace n --metric-name m --dimensions a=b --value 1"
    proxies = "export no_proxy=* NO_PROXY=*\n"
    script.write_text(f"{proxies}aws cloudwatch put-metric-data {metric} --unit Cows\n", "utf-8")
    with pytest.raises(AssertionError, match="Value 'Cows' at "):
        Machine(tmp_path, server).boot(script)
    server.close()


def test_only_the_models_module_starts_moto_without_a_sandbox() -> None:
    tests = Path(models.__file__).parent
    assert [
        path.name for path in tests.rglob("*.py") if "moto import mock_" + "aws" in path.read_text("utf-8")
    ] == ["models.py"]


def hidden() -> None:
    with sandbox("us-west-2") as clients:
        ask(clients("ssm"))


def test_in_a_separate_process() -> None:
    with pytest.raises(LocalCloudError, match=r"^AWS refuses ssm\.DescribeParameters: .* 'MaxResults'"):
        apart(hidden)


def aged() -> None:
    with sandbox("us-west-2") as clients, contextlib.suppress(DeprecationWarning):
        clients("s3").get_bucket_lifecycle(Bucket="gpu-spot")


def test_in_a_separate_process_a_deprecated_call_is_an_error() -> None:
    with pytest.raises(LocalCloudError, match=r"^s3\.GetBucketLifecycle is deprecated$"):
        apart(aged)


def deployed_wrongly() -> None:
    warnings.filterwarnings("ignore", category=DeprecationWarning, module="pulumi_aws")
    with with_wrong_parameters("PutMetricAlarm", ComparisonOperator="Above"), sandbox("us-west-2") as clients:
        deploy(clients, load("dev"))


def test_in_a_deployment_the_error_names_the_resource() -> None:
    with pytest.raises(LocalCloudError, match=r"MetricAlarm .*: .*Value 'Above' at "):
        apart(deployed_wrongly)


def controlled_wrongly() -> None:
    with living(load("dev", small())) as world, with_wrong_parameters("PutItem", ReturnValues="EVERYTHING"):
        world.cloud.tick_schedule()
        world.cloud.run_functions()


def test_in_a_deployed_function() -> None:
    with pytest.raises(LocalCloudError, match=r"^AWS refuses dynamodb\.PutItem: .* 'EVERYTHING' "):
        apart(controlled_wrongly)


def commanded(out: Path, arguments: list[str], operation: str, wrong: dict[str, Any]) -> tuple[int, str]:
    os.chdir(REPOSITORY)
    stderr = io.StringIO()
    with with_wrong_parameters(operation, **wrong), contextlib.redirect_stderr(stderr):
        code = cli.main(["demo", *arguments, "--out", str(out)])
    return code, stderr.getvalue()


@pytest.mark.soak
def test_on_a_rehearsed_node_and_in_the_command(tmp_path: Path) -> None:
    arguments = ["--stack", "research", "--group", "resnet", "--hours", "2"]
    code, stderr = apart(commanded, tmp_path, arguments, "CreateVolume", {"VolumeType": "gp9"})
    assert code == 2
    assert "AWS refuses ec2.CreateVolume: 1 validation error detected: Value 'gp9' at 'VolumeType'" in stderr
