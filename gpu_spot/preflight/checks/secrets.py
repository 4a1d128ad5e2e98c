"""Secrets and existing queues that the stack file names: that they exist. Secrets' values are not read."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from botocore.exceptions import ClientError

from contracts.agent import secret_sources
from gpu_spot.preflight.account import Account
from gpu_spot.preflight.check_result import CheckResult, error_code
from gpu_spot.preflight.stack import Stack
from infra.schema.services.queues.rabbitmq import ExistingBroker
from infra.schema.services.queues.sqs import ExistingSqs

_TOKEN: Final = "TOKEN or USER:TOKEN"  # noqa: S105 - a format
_VARIABLES: Final = '{"NAME": "value", …}'
_LOGIN: Final = '{"username": "…", "password": "…"}'
_NO_QUEUE: Final = ("AWS.SimpleQueueService.NonExistentQueue", "QueueDoesNotExist")

_MIN_VISIBILITY_SECONDS: Final = 10
"""What ``spot_work`` demands of a queue."""


def run(stack: Stack, account: Account) -> Iterator[CheckResult]:
    """Check the secrets of commands, repositories and tenants; a broker's is checked with its queue."""
    for job in stack.settings.jobs:
        if job.repository_secret is not None:
            key = stack.key(job.name, "repositorySecret")
            yield _secret(f"repository of {job.name}", job.repository_secret, _TOKEN, account, key)
    for entry in (*stack.settings.services, *stack.settings.training):
        for variable, reference in entry.secrets.items():
            source, key = secret_sources.parse(reference), stack.key(entry.name, f"secrets.{variable}")
            value = f'{{"{source.key}": "…"}}' if source.key else "a text"
            subject = f"{variable} of {entry.name}"
            check = _parameter if source.is_parameter else _secret
            yield check(subject, source.name, value, account, key)
    for host in stack.settings.shared_hosts:
        for index, tenant in enumerate(host.tenants):
            for name, format_, field in (
                (tenant.secret, _VARIABLES, "secret"),
                (tenant.registry_secret, _LOGIN, "registrySecret"),
            ):
                if name is not None:
                    key = stack.key(host.name, f"tenants[{index}].{field}")
                    yield _secret(f"tenant {tenant.name} of {host.name}", name, format_, account, key)


def _secret(subject: str, name: str, value: str, account: Account, key: str) -> CheckResult:
    """Check that a secret has a value that can be read; ``value`` is its format."""
    secret = None
    try:
        secret = account.clients("secretsmanager").describe_secret(SecretId=name)
    except ClientError as error:
        if error_code(error) != "ResourceNotFoundException":
            raise
    if secret is None:
        finding, advice = "does not exist in this region", f"create it with the value {value}"
    elif "DeletedDate" in secret:  # "its details … not accessible": API reference, ``DescribeSecret``
        finding, advice = "is scheduled for deletion", "restore it"
    elif not secret.get("VersionIdsToStages"):
        finding, advice = "has no value", f"store {value}"
    else:
        return CheckResult(subject, "ok", f"secret {name} exists", key=key)
    finding = f"secret {name} {finding}: its user would wait for it"
    return CheckResult(subject, "failure", finding, advice, key)


def _parameter(subject: str, name: str, value: str, account: Account, key: str) -> CheckResult:
    """Check that a parameter exists, without its value."""
    filters = [{"Key": "Name", "Values": [name]}]
    # A page may be empty before the one that has it (API reference, ``DescribeParameters``).
    pages = account.clients("ssm").get_paginator("describe_parameters").paginate(ParameterFilters=filters)
    if any(page["Parameters"] for page in pages):
        return CheckResult(subject, "ok", f"parameter {name} exists", key=key)
    finding = f"parameter {name} does not exist in this region: its user would wait for it"
    return CheckResult(subject, "failure", finding, f"create it with the value {value}", key)


def queues(stack: Stack, account: Account) -> Iterator[CheckResult]:
    """Check each existing queue that a service names."""
    for service in stack.services:
        if service.queue is not None and service.queue.existing is not None:
            key, check = stack.key(service.name, "queue.existing"), KINDS[service.queue.kind]
            yield check(f"queue of {service.name}", service.queue.existing, account, key)


def _broker(subject: str, settings: ExistingBroker, account: Account, key: str) -> CheckResult:
    """Check the secret of an existing broker; Amazon MQ checks a declared one when it is created."""
    if settings.broker_of is not None:
        return CheckResult(subject, "ok", f"on the broker of {settings.broker_of}", key=key)
    assert settings.secret is not None
    return _secret(subject, settings.secret, "amqps://user:password@host:port", account, key)


def _queue(subject: str, settings: ExistingSqs, account: Account, key: str) -> CheckResult:
    client = account.clients("sqs")
    try:
        url = client.get_queue_url(QueueName=settings.queue)["QueueUrl"]
    except ClientError as error:
        if error_code(error) not in _NO_QUEUE:
            raise
        finding = f"queue {settings.queue} does not exist in this account and region: workers would exit"
        return CheckResult(subject, "failure", finding, "create it with a dead-letter queue", key)
    response = client.get_queue_attributes(
        QueueUrl=url, AttributeNames=["RedrivePolicy", "VisibilityTimeout"]
    )
    policy = json.loads(response["Attributes"].get("RedrivePolicy") or "{}")
    dead = policy.get("deadLetterTargetArn", "").rpartition(":")[2]
    if dead != settings.dead_letters:
        finding = f"{settings.queue} has dead-letter queue {dead or 'none'}, not {settings.dead_letters}"
        advice = "set its redrive policy, or queue.existing.deadLetters"
        return CheckResult(subject, "failure", finding, advice, key)
    if (seconds := int(response["Attributes"]["VisibilityTimeout"])) < _MIN_VISIBILITY_SECONDS:
        finding = f"{settings.queue} has a visibility timeout of {seconds} s: workers would exit"
        return CheckResult(subject, "failure", finding, f"set {_MIN_VISIBILITY_SECONDS} s or more", key)
    return CheckResult(subject, "ok", f"{settings.queue} exists, its dead-letter queue is {dead}", key=key)


KINDS: Final[Mapping[str, Callable[[str, Any, Account, str], CheckResult]]] = {
    "rabbitmq": _broker,
    "sqs": _queue,
}
"""The check of an existing queue by ``services[].queue.kind``."""
