"""The boot data of an instance, verified as by its boot script."""

from __future__ import annotations

import base64
import hashlib
import shlex
from dataclasses import dataclass
from typing import Any, Final

import yaml
from botocore.exceptions import ClientError

from contracts.agent import config
from contracts.agent.config import Config
from contracts.agent.names import CONFIG_PATH
from pulumi_on_moto.emulator import AwsClients
from pulumi_on_moto.errors import LocalCloudError

_ENVIRONMENT: Final = "/etc/gpu-spot/boot.env"


@dataclass(frozen=True, slots=True)
class BootData:
    """The agent's configuration, and location and SHA-256 of its archive."""

    agent: Config
    bucket: str
    key: str
    sha256: str


def parse(text: str) -> BootData:
    """Parse a cloud-config; raise ``LocalCloudError`` or ``ConfigError`` if it would not boot."""
    body: dict[str, Any] = yaml.safe_load(text)
    files = {file["path"]: file["content"] for file in body.get("write_files", [])}
    for path in (str(CONFIG_PATH), _ENVIRONMENT):
        if path not in files:
            raise LocalCloudError(f"boot data does not write {path}; it writes {', '.join(sorted(files))}")
    variables = dict(word.split("=", 1) for word in shlex.split(files[_ENVIRONMENT]))
    return BootData(
        config.parse(files[str(CONFIG_PATH)]),
        variables["AGENT_BUCKET"],
        variables["AGENT_KEY"],
        variables["AGENT_SHA256"],
    )


def boot(clients: AwsClients, instance_id: str) -> Config:
    """Fetch and verify the agent's archive of an instance; return the agent's configuration.

    Raises ``LocalCloudError`` for a missing archive or another SHA-256 than in the boot data.
    """
    attribute = clients("ec2").describe_instance_attribute(InstanceId=instance_id, Attribute="userData")
    encoded = attribute["UserData"].get("Value", "")
    if not encoded:
        raise LocalCloudError(f"instance {instance_id} has no boot data")
    data = parse(base64.b64decode(encoded).decode())
    uri = f"s3://{data.bucket}/{data.key}"
    try:
        archive = clients("s3").get_object(Bucket=data.bucket, Key=data.key)["Body"].read()
    except ClientError as error:
        raise LocalCloudError(f"instance {instance_id}: {uri}: {error}") from None
    digest = hashlib.sha256(archive).hexdigest()
    if digest != data.sha256:
        raise LocalCloudError(f"instance {instance_id}: {uri} has SHA-256 {digest}, not {data.sha256}")
    return data.agent
