"""Secrets in Secrets Manager that the stack file names: that they exist. Their values are not read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from botocore.exceptions import ClientError

from gpu_spot.preflight.account import Account
from gpu_spot.preflight.check_result import CheckResult
from gpu_spot.preflight.stack import Stack

NAME: Final = "secrets"

_TOKEN: Final = "TOKEN or USER:TOKEN"  # noqa: S105 - a format
_VARIABLES: Final = '{"NAME": "value", …}'
_LOGIN: Final = '{"username": "…", "password": "…"}'


def run(stack: Stack, account: Account) -> Iterator[CheckResult]:
    """Check the secrets of jobs' repositories and of tenants; a broker's is checked with its queue."""
    for job in stack.settings.jobs:
        if job.repository_secret is not None:
            key = stack.key(job.name, "repositorySecret")
            yield check(f"repository of {job.name}", job.repository_secret, _TOKEN, account, key)
    for host in stack.settings.shared_hosts:
        for index, tenant in enumerate(host.tenants):
            for name, format_, field in (
                (tenant.secret, _VARIABLES, "secret"),
                (tenant.registry_secret, _LOGIN, "registrySecret"),
            ):
                if name is not None:
                    key = stack.key(host.name, f"tenants[{index}].{field}")
                    yield check(f"tenant {tenant.name} of {host.name}", name, format_, account, key)


def check(subject: str, name: str, value: str, account: Account, key: str = "") -> CheckResult:
    """Check that a secret exists; ``value`` is the format of its value."""
    try:
        account.clients("secretsmanager").describe_secret(SecretId=name)
    except ClientError as error:
        if error.response["Error"]["Code"] != "ResourceNotFoundException":
            raise
        finding = f"secret {name} does not exist in this region: its user would wait for it"
        return CheckResult(subject, "failure", finding, f"create it with the value {value}", key)
    return CheckResult(subject, "ok", f"secret {name} exists", key=key)
