"""Values outside of AWS's models are refused, and no code can hide it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import botocore.session
import pytest
from botocore.exceptions import ClientError, ParamValidationError

from pulumi_on_moto import Deployment
from pulumi_on_moto.fixes.parameters import faults, readable
from pulumi_on_moto.mapping import SPECS

TRUST = '{"Version": "2012-10-17", "Statement": []}'
WRONG = {
    "enum": ("ec2", "create_volume", {"AvailabilityZone": "us-west-2a", "Size": 1, "VolumeType": "gp9"}),
    "enum in a list": (
        "sqs",
        "receive_message",
        {"QueueUrl": "q", "MessageSystemAttributeNames": ["All", "Size"]},
    ),
    "enum as a key": ("sqs", "create_queue", {"QueueName": "q", "Attributes": {"Delay": "1"}}),
    "length": ("iam", "create_role", {"RoleName": "r" * 65, "AssumeRolePolicyDocument": TRUST}),
    "length of a list": ("events", "remove_targets", {"Rule": "r", "Ids": [str(i) for i in range(101)]}),
    "length of bytes": ("kms", "encrypt", {"KeyId": "k", "Plaintext": b"x" * 4097}),
    "pattern": ("iam", "create_role", {"RoleName": "a role", "AssumeRolePolicyDocument": TRUST}),
    "number": ("ssm", "describe_parameters", {"MaxResults": 51}),
}
SAYS = {
    "enum": "'gp9' at 'VolumeType' failed to satisfy constraint: Member must satisfy enum value set: [gp2, ",
    "enum in a list": "Value 'Size' at 'MessageSystemAttributeNames[1]' failed",
    "enum as a key": "Value 'Delay' at 'Attributes (key)' failed",
    "length": "'RoleName' failed to satisfy constraint: Member must have length less than or equal to 64",
    "length of a list": "'Ids' failed to satisfy constraint: Member must have length less than",
    "length of bytes": "constraint: Member must have length less than or equal to 4096",
    "pattern": "'RoleName' failed to satisfy constraint: Member must satisfy regular expression pattern: [",
    "number": "'MaxResults' failed to satisfy constraint: Member must have value less than or equal to 50",
}
CODES = {"ec2": "InvalidParameterValue", "iam": "ValidationError", "ssm": "ValidationException"}


@pytest.fixture
def refused(deployment: Deployment) -> Iterator[list[str]]:
    yield deployment.clients.refused
    deployment.clients.refused.clear()


@pytest.mark.parametrize("what", WRONG)
def test_a_value_outside_of_the_model_is_refused(
    deployment: Deployment, refused: list[str], what: str
) -> None:
    service, method, params = WRONG[what]
    with pytest.raises(ClientError, match=re.escape(SAYS[what])) as caught:
        getattr(deployment.clients(service), method)(**params)
    if service in CODES:
        assert caught.value.response["Error"]["Code"] == CODES[service]
    [line] = refused
    assert line.startswith(
        f"AWS refuses {service}.{caught.value.operation_name}: 1 validation error detected: Value "
    )


def test_what_boto3_itself_refuses_it_still_refuses(deployment: Deployment, refused: list[str]) -> None:
    with pytest.raises(ParamValidationError, match="Must set one of the following keys for tagged union"):
        deployment.clients("cloudwatch").put_metric_alarm(AlarmName="a", EvaluationCriteria={})
    assert refused == []


def operation(service: str, name: str) -> Any:
    return botocore.session.get_session().get_service_model(service).operation_model(name)


@pytest.mark.parametrize(
    ("service", "name", "params", "says"),
    [
        ("s3", "GetBucketLifecycle", {"Bucket": "b"}, r"^s3\.GetBucketLifecycle is deprecated$"),
        (
            "budgets",
            "CreateBudget",
            {"Budget": {"CostFilters": {}}},
            r"^Budget\.CostFilters .* is deprecated$",
        ),
    ],
)
def test_what_the_model_calls_deprecated_warns(
    service: str, name: str, params: dict[str, Any], says: str
) -> None:
    with pytest.warns(DeprecationWarning, match=says):
        assert faults(operation(service, name), params) == []


def test_several_faults_are_listed_together_and_long_values_cut() -> None:
    found = faults(operation("iam", "CreateRole"), {"RoleName": "r" * 200 + "!", "Path": "x"})
    cut = f"Value '{'r' * 96}... at"
    assert [one.partition(" failed")[0] for one in found] == [
        f"{cut} 'RoleName'",
        f"{cut} 'RoleName'",
        "Value 'x' at 'Path'",
    ]


UNREADABLE = {
    r"\p{Print}+": "a class of Java's own: printable ASCII",
    r"[\p{L}\p{M}\p{N}\p{P}\p{S}\p{Zs}]+": "Python has no class for the marks and punctuation of all scripts",
    r"^([\p{L}\p{Z}\p{N}\p{P}\p{M}]*)$": "the same",
    r"^(?![^:\\]*/action/|(?i).*<script>.*</script>.*)[^:\\]+$": "turns case off in its middle",
}


def test_every_pattern_of_the_emulated_services_is_read_but_these() -> None:
    session = botocore.session.get_session()
    services = {spec.service for spec in SPECS.values()}
    patterns = {
        shape["pattern"]
        for service in services
        for shape in session.get_service_model(service)._service_description["shapes"].values()
        if "pattern" in shape
    }
    assert len(patterns) > 200
    assert {pattern for pattern in patterns if readable(pattern) is None} == UNREADABLE.keys()


def test_letters_of_any_script_and_characters_above_the_first_plane_pass() -> None:
    tag = readable(r"^([\p{L}\p{Z}\p{N}_.:/=+\-@]*)$")
    assert tag
    assert tag.fullmatch("größe 3")
    assert not tag.fullmatch("a*b")
    path = readable(r"[\w-\/.]+")
    assert path
    assert path.fullmatch("a-b/c")
    text = readable(r"[\u0020-\uD7FF\uE000-\uFFFD\uD800\uDC00-\uDBFF\uDFFF\r\n\t]*")
    assert text
    assert text.fullmatch("\U0001f600")
    assert not text.fullmatch("\x00")


HIDDEN = """
import contextlib
from botocore.exceptions import ClientError
from pulumi_on_moto import LocalCloudError, sandbox

def ask(clients):
    with contextlib.suppress(ClientError):
        clients("ssm").describe_parameters(MaxResults=51)

try:
    with sandbox("us-west-2") as clients:
        ask(clients), ask(clients)
except LocalCloudError as error:
    print(error)
with sandbox("us-west-2") as clients:  # a new one knows nothing of it
    ask(clients)
    clients.refused.clear()
try:
    with sandbox("us-west-2") as clients:
        ask(clients)
        raise ValueError("the body's own error comes out")
except ValueError as error:
    print(error)
"""


def test_a_refusal_that_no_caller_saw_ends_the_sandbox_with_an_error(python: Callable[..., str]) -> None:
    output_lines = python(HIDDEN).splitlines()
    assert output_lines == [
        "AWS refuses ssm.DescribeParameters: 1 validation error detected: Value 51 at 'MaxResults' failed to "
        "satisfy constraint: Member must have value less than or equal to 50 (and 1 more calls)",
        "the body's own error comes out",
    ]
