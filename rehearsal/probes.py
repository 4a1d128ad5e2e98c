"""What simulated instances do with the user data of ``gpu_spot.aws_check.probe``."""

from __future__ import annotations

import json
from typing import Any, Final

from botocore.exceptions import ClientError
from moto.core.types import Base64EncodedString

from gpu_spot.aws_check.probe import ALLOWED, DENIED, OWN_ARN, OWN_ID, ProbeStep, parse
from gpu_spot.preflight.account import ClientOf
from rehearsal.assumed_roles import role_clients

_UNKNOWN: Final = "404"
_UNAUTHORIZED: Final = "401"


def play(clients: ClientOf, account: str, region: str, instance: Any) -> None:
    """Run the steps in an instance's user data, if any, and write their results."""
    steps = parse(_text(instance.user_data))
    if steps is None:
        return
    probes, parameter = steps
    arn = f"arn:aws:ec2:{region}:{account}:instance/{instance.id}"
    role = _role(clients, instance.iam_instance_profile)
    own_clients = role_clients(clients, role, account, {"ec2:SourceInstanceARN": [arn]})
    results = {probe.name: _result(probe, own_clients, instance, arn) for probe in probes}
    own_clients("ssm").put_parameter(Name=parameter, Value=json.dumps(results), Type="String")


def _text(user_data: Base64EncodedString | None) -> str:
    return "" if user_data is None else user_data.decode()


def _role(clients: ClientOf, profile: Any) -> str:
    iam = clients("iam")
    name = str(profile["Arn"] if isinstance(profile, dict) else profile).rpartition("/")[2]
    return str(iam.get_instance_profile(InstanceProfileName=name)["InstanceProfile"]["Roles"][0]["RoleName"])


def _result(probe: ProbeStep, own_clients: ClientOf, instance: Any, arn: str) -> str:
    if probe.path:
        return _metadata(probe, instance)
    if probe.command:
        return "127: no command runs on a simulated instance"
    text = json.dumps(dict(probe.arguments)).replace(OWN_ARN, arn).replace(OWN_ID, instance.id)
    try:
        getattr(own_clients(probe.service), probe.operation)(**json.loads(text))
    except ClientError as error:
        return DENIED if error.response["Error"]["Code"].startswith("AccessDenied") else str(error)
    return ALLOWED


def _metadata(probe: ProbeStep, instance: Any) -> str:
    if not probe.with_token and instance.metadata_options.http_tokens == "required":
        return _UNAUTHORIZED
    metadata = {
        "meta-data/instance-life-cycle": "spot" if instance.lifecycle == "spot" else "on-demand",
        "meta-data/local-ipv4": instance.private_ip,
    }
    return str(metadata.get(probe.path, _UNKNOWN))
