"""Availability of the declared brokers in Amazon MQ, and the secrets of existing brokers.

Source: ``DescribeBrokerInstanceOptions``: versions, deployment modes and zones of an instance type in a
region.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gpu_spot.preflight.account import Account
from gpu_spot.preflight.check_result import CheckResult
from gpu_spot.preflight.checks.account import secrets
from gpu_spot.preflight.stack import Stack
from infra.schema.services.queues.rabbitmq import ExistingBroker


def declared(stack: Stack, account: Account) -> Iterator[CheckResult]:
    """Check each declared broker."""
    for resource in stack.declared:
        if resource.type == "aws:mq/broker:Broker":
            yield _broker(resource.name, resource.inputs, stack.zones, account)


def existing(service: str, settings: ExistingBroker, account: Account) -> CheckResult:
    """Check the secret of an existing broker; another service's broker is checked where it is declared."""
    subject = f"queue of {service}"
    if settings.broker_of is not None:
        return CheckResult(subject, "ok", f"on the broker of {settings.broker_of}")
    assert settings.secret is not None
    return secrets.check(subject, settings.secret, "amqps://user:password@host:port", account)


def _broker(name: str, inputs: Mapping[str, Any], zones: tuple[str, ...], account: Account) -> CheckResult:
    kind, version, mode = inputs["hostInstanceType"], inputs["engineVersion"], inputs["deploymentMode"]
    options = account.clients("mq").describe_broker_instance_options(
        EngineType="RABBITMQ", HostInstanceType=kind, MaxResults=100
    )["BrokerInstanceOptions"]
    if not options:
        return CheckResult(
            name, "failure", f"{kind} is not offered in this region", "choose another instanceType"
        )
    fit = [
        option
        for option in options
        if mode in option["SupportedDeploymentModes"]
        and any(f"{sold}.".startswith(f"{version}.") for sold in option["SupportedEngineVersions"])
    ]
    if not fit:
        sold = {f"{v} as {m}" for o in options for v in o["SupportedEngineVersions"] for m in _modes(o)}
        finding = (
            f"{kind} does not support RabbitMQ {version} as {mode}; supported: {', '.join(sorted(sold))}"
        )
        return CheckResult(name, "failure", finding, "change engineVersion, deployment or instanceType")
    zone_names = {zone["Name"] for option in fit for zone in option["AvailabilityZones"]}
    missing_zones = [zone for zone in zones[: len(inputs.get("subnetIds", ()))] if zone not in zone_names]
    if missing_zones:
        finding = f"{kind} is not offered in {', '.join(missing_zones)}, the broker's zones"
        return CheckResult(
            name, "failure", finding, f"put one of {', '.join(sorted(zone_names))} first in network.zones"
        )
    return CheckResult(name, "ok", f"{kind} supports RabbitMQ {version} as {mode}")


def _modes(option: Mapping[str, Any]) -> list[str]:
    return list(option["SupportedDeploymentModes"])
