"""What Amazon MQ sells here of the stack's brokers, and the secrets and queues that are there.

Source: ``DescribeBrokerInstanceOptions``: versions, deployments and zones of an instance type in this region.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from botocore.exceptions import ClientError

from gpu_spot.preflight.account import Account
from gpu_spot.preflight.remark import Remark
from gpu_spot.preflight.stack import Stack
from infra.schema import Queue
from infra.schema.services.sqs_queue import ExistingSqs, SqsQueue

NAME: Final = "queues"

_NO_QUEUE: Final = ("AWS.SimpleQueueService.NonExistentQueue", "QueueDoesNotExist")


def look(stack: Stack, account: Account) -> Iterator[Remark]:
    """Look at each broker that the stack declares, then at each secret that it only names."""
    for one in stack.declared:
        if one.type == "aws:mq/broker:Broker":
            yield _broker(one.name, one.inputs, stack.zones, account)
    for service in stack.settings.services:
        if service.queue is None or service.queue.existing is None:
            continue
        if isinstance(service.queue, SqsQueue):
            yield _sqs(service.name, service.queue.existing, account)
        elif isinstance(service.queue, Queue):
            yield _secret(service.name, service.queue.existing.secret, account)


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


def _secret(service: str, secret: str, account: Account) -> Remark:
    subject = f"queue of {service}"
    try:
        account.clients("secretsmanager").describe_secret(SecretId=secret)
    except ClientError as error:
        if error.response["Error"]["Code"] != "ResourceNotFoundException":
            raise
        found = f"there is no secret {secret} in this region: workers would wait for it"
        return Remark(subject, "failure", found, "make it, with amqps://user:password@host:port as its text")
    return Remark(subject, "ok", f"secret {secret} is there")


def _sqs(service: str, wanted: ExistingSqs, account: Account) -> Remark:
    subject, client = f"queue of {service}", account.clients("sqs")
    try:
        url = client.get_queue_url(QueueName=wanted.queue)["QueueUrl"]
    except ClientError as error:
        if error.response["Error"]["Code"] not in _NO_QUEUE:
            raise
        found = f"there is no queue {wanted.queue} in this account and region: workers would end at once"
        return Remark(subject, "failure", found, "make it, with a dead-letter queue behind it")
    told = client.get_queue_attributes(QueueUrl=url, AttributeNames=["RedrivePolicy"]).get("Attributes", {})
    dead = json.loads(told.get("RedrivePolicy") or "{}").get("deadLetterTargetArn", "").rpartition(":")[2]
    if dead != wanted.dead_letters:
        found = f"{wanted.queue} sends its dead letters to {dead or 'nobody'}, not to {wanted.dead_letters}"
        return Remark(subject, "failure", found, "set its redrive policy, or queue.existing.deadLetters")
    return Remark(subject, "ok", f"{wanted.queue} is there, its dead letters go to {dead}")
