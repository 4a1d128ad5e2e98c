"""The hosts of a service's workers: EC2's instances of the group, and the configured hosts on premises."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from contracts.names import TAG_GROUP, TAG_STACK
from userdata.agent.aws.clients import aws_errors

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client


@dataclass(frozen=True, slots=True)
class HttpHost:
    """A host with workers; ``launched_at`` is in epoch seconds, None on premises."""

    name: str
    """Id of the instance; on premises the address."""
    address: str
    launched_at: float | None = None


Discovery = Callable[[], tuple[HttpHost, ...]]
"""Returns the hosts; raises `AgentError` if they are unknown now."""


def on_premises(addresses: tuple[str, ...]) -> tuple[HttpHost, ...]:
    """Return the hosts at fixed addresses."""
    return tuple(HttpHost(address, address) for address in addresses)


def describe(client: EC2Client, stack: str, group: str) -> tuple[HttpHost, ...]:
    """Return the group's instances that run or start, with their private addresses.

    Proxies lack the group's tag (`names.TAG_PROXY`).

    Raises:
        AwsError: EC2 refuses the request or cannot be reached.
    """
    filters: Any = [
        {"Name": f"tag:{TAG_STACK}", "Values": [stack]},
        {"Name": f"tag:{TAG_GROUP}", "Values": [group]},
        {"Name": "instance-state-name", "Values": ["pending", "running"]},
    ]
    hosts = []
    with aws_errors(f"instances of {group}"):
        for page in client.get_paginator("describe_instances").paginate(Filters=filters):
            for reservation in page["Reservations"]:
                for instance in reservation["Instances"]:
                    if address := instance.get("PrivateIpAddress"):
                        launched_at = instance["LaunchTime"].timestamp()
                        hosts.append(HttpHost(instance["InstanceId"], address, launched_at))
    return tuple(hosts)
