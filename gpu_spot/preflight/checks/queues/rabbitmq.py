"""What Amazon MQ sells here of the stack's brokers, and the secrets of those that are there.

Source: ``DescribeBrokerInstanceOptions``: versions, deployments and zones of an instance type in this region.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from botocore.exceptions import ClientError

from gpu_spot.preflight.account import Account
from gpu_spot.preflight.remark import Remark
from gpu_spot.preflight.stack import Stack
from infra.schema.services.queues.rabbitmq import ExistingBroker


def declared(stack: Stack, account: Account) -> Iterator[Remark]:
    """Look at each broker that the stack declares."""
    for one in stack.declared:
        if one.type == "aws:mq/broker:Broker":
            yield _broker(one.name, one.inputs, stack.zones, account)


def existing(service: str, wanted: ExistingBroker, account: Account) -> Remark:
    """Look for the secret of a broker that is there."""
    subject = f"queue of {service}"
    try:
        account.clients("secretsmanager").describe_secret(SecretId=wanted.secret)
    except ClientError as error:
        if error.response["Error"]["Code"] != "ResourceNotFoundException":
            raise
        found = f"there is no secret {wanted.secret} in this region: workers would wait for it"
        return Remark(subject, "failure", found, "make it, with amqps://user:password@host:port as its text")
    return Remark(subject, "ok", f"secret {wanted.secret} is there")


def _broker(name: str, wanted: Mapping[str, Any], zones: tuple[str, ...], account: Account) -> Remark:
    kind, version, mode = wanted["hostInstanceType"], wanted["engineVersion"], wanted["deploymentMode"]
    options = account.clients("mq").describe_broker_instance_options(
        EngineType="RABBITMQ", HostInstanceType=kind, MaxResults=100
    )["BrokerInstanceOptions"]
    if not options:
        return Remark(name, "failure", f"{kind} is not sold in this region", "choose another instanceType")
    fit = [
        one
        for one in options
        if mode in one["SupportedDeploymentModes"]
        and any(f"{sold}.".startswith(f"{version}.") for sold in one["SupportedEngineVersions"])
    ]
    if not fit:
        sold = {f"{v} as {m}" for o in options for v in o["SupportedEngineVersions"] for m in _modes(o)}
        found = f"{kind} does not run RabbitMQ {version} as {mode}; it runs {', '.join(sorted(sold))}"
        return Remark(name, "failure", found, "change engineVersion, deployment or instanceType")
    there = {zone["Name"] for one in fit for zone in one["AvailabilityZones"]}
    lacking = [zone for zone in zones[: len(wanted.get("subnetIds", ()))] if zone not in there]
    if lacking:
        found = f"{kind} is not sold in {', '.join(lacking)}, where the broker would be"
        return Remark(name, "failure", found, f"put one of {', '.join(sorted(there))} first in network.zones")
    return Remark(name, "ok", f"{kind} runs RabbitMQ {version} as {mode}")


def _modes(option: Mapping[str, Any]) -> list[str]:
    return list(option["SupportedDeploymentModes"])
