"""Calls that an instance makes with its own credentials and metadata, and their results.

The user data is a Python script; it needs the AWS CLI, which Amazon Linux 2023 has (AL2023 user guide, "AWS
CLI"). It writes the results to a parameter of the run.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from gpu_spot.aws_check import roles
from gpu_spot.aws_check.aws_test_bed import INSTANCE_TYPE, AwsTestBed
from gpu_spot.aws_check.roles import PolicyStatement

OWN_ARN: Final = "@INSTANCE_ARN@"
OWN_ID: Final = "@INSTANCE_ID@"
ALLOWED: Final = "ok"
DENIED: Final = "denied"
_MARK: Final = "PROBES = json.loads(r'''"
_SCRIPT: Final = """#!/usr/bin/python3
import json, subprocess, time, urllib.error, urllib.request
PROBES = json.loads(r'''%s''')
PARAMETER = "%s"
METADATA = "http://169.254.169.254/latest/"


def get(path, with_token=True):
    headers = {}
    if with_token:
        token = urllib.request.Request(
            METADATA + "api/token", method="PUT", headers={"X-aws-ec2-metadata-token-ttl-seconds": "300"})
        headers["X-aws-ec2-metadata-token"] = urllib.request.urlopen(token, timeout=5).read().decode()
    try:
        request = urllib.request.Request(METADATA + path, headers=headers)
        return urllib.request.urlopen(request, timeout=5).read().decode()
    except urllib.error.HTTPError as error:
        return str(error.code)


identity = json.loads(get("dynamic/instance-identity/document"))
arn = "arn:%%s:ec2:%%s:%%s:instance/%%s" %% (
    get("meta-data/services/partition"), identity["region"], identity["accountId"], identity["instanceId"])


def run(command):
    done = subprocess.run(command, capture_output=True, text=True)
    return done.returncode, (done.stdout if done.returncode == 0 else done.stderr).strip()


def aws(service, operation, arguments):
    return run(["aws", service, operation.replace("_", "-"), "--region", identity["region"],
                "--cli-input-json", json.dumps(arguments)])


def result(probe):
    if probe["path"]:
        return get(probe["path"], probe["with_token"])
    if probe["command"]:
        code, text = run(probe["command"])
        return text[:150] if code == 0 else "%%d: %%s" %% (code, text[-150:])
    text = json.dumps(probe["arguments"])
    text = text.replace("@INSTANCE_ARN@", arn).replace("@INSTANCE_ID@", identity["instanceId"])
    for _ in range(12):
        code, answer = aws(probe["service"], probe["operation"], json.loads(text))
        if code == 0:
            return "ok"
        if "AccessDenied" not in answer:
            return answer[-150:]
        time.sleep(5)  # the policy may not have reached the service
    return "denied"


results = {probe["name"]: result(probe) for probe in PROBES}
for _ in range(12):
    report = {"Name": PARAMETER, "Value": json.dumps(results), "Type": "String"}
    if aws("ssm", "put_parameter", report)[0] == 0:
        break
    time.sleep(5)
"""


@dataclass(frozen=True, slots=True)
class ProbeStep:
    """One step of an instance: a call of a service, a request of metadata, or a command.

    Attributes:
        name: of its result.
        service: of a call; ``operation`` as in the SDK, and ``arguments``.
        path: below ``/latest/`` of the metadata service; ``with_token`` is IMDSv2.
        command: a program and its arguments.
    """

    name: str
    service: str = ""
    operation: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    path: str = ""
    with_token: bool = True
    command: Sequence[str] = ()


def user_data(probes: Sequence[ProbeStep], parameter: str) -> str:
    """Return the script of an instance."""
    return _SCRIPT % (json.dumps([asdict(probe) for probe in probes]), parameter)


def parse(text: str) -> tuple[list[ProbeStep], str] | None:
    """Return the steps and the parameter in user data; None if it is not a script of this module."""
    _, mark, rest = text.partition(_MARK)
    if not mark:
        return None
    steps, _, rest = rest.partition("''')\nPARAMETER = \"")
    return [ProbeStep(**step) for step in json.loads(steps)], rest.partition('"')[0]


def encoded_user_data(probes: Sequence[ProbeStep], parameter: str) -> str:
    """Return the script in base64, as launch templates need it."""
    return base64.b64encode(user_data(probes, parameter).encode()).decode()


def reporting_profile(
    test_bed: AwsTestBed, suffix: str, statements: Sequence[PolicyStatement], parameter: str
) -> str:
    """Create an instance profile that may also write the parameter; return its name."""
    report = {"Action": "ssm:PutParameter", "Resource": test_bed.arn("ssm", f"parameter{parameter}")}
    return roles.instance_profile(test_bed, suffix, [*statements, report])


def results(ssm: Any, parameter: str) -> dict[str, str] | None:
    """Return the results that an instance has written; None before."""
    parameters = ssm.get_parameters(Names=[parameter])["Parameters"]
    return dict(json.loads(parameters[0]["Value"])) if parameters else None


def run(
    test_bed: AwsTestBed,
    suffix: str,
    statements: Sequence[PolicyStatement],
    probes: Sequence[ProbeStep],
    **launch: Any,
) -> dict[str, str]:
    """Launch an instance with a role of its own and return the results by name."""
    ec2, ssm = test_bed.clients("ec2"), test_bed.clients("ssm")
    parameter = f"/gpu-spot-check/{test_bed.run}/{suffix}"
    profile = reporting_profile(test_bed, suffix, statements, parameter)
    options = {
        "ImageId": test_bed.image,
        "InstanceType": INSTANCE_TYPE,
        "MetadataOptions": {"HttpTokens": "required", "HttpPutResponseHopLimit": 1},
        "SubnetId": next(iter(test_bed.subnets.values())),
        "TagSpecifications": test_bed.tag_specifications("instance", "volume"),
    } | launch
    ec2.run_instances(
        MinCount=1,
        MaxCount=1,
        IamInstanceProfile={"Name": profile},
        UserData=user_data(probes, parameter),
        **options,
    )
    return test_bed.wait_until(lambda: results(ssm, parameter), "the results of the instance", 600)
