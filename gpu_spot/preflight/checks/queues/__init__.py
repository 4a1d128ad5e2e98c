"""Queues of services: availability of declared brokers, and existence of queues that are referenced."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final, Protocol

from gpu_spot.preflight.account import Account
from gpu_spot.preflight.check_result import CheckResult
from gpu_spot.preflight.checks.queues import rabbitmq, sqs
from gpu_spot.preflight.stack import Stack

NAME: Final = "queues"


class _Kind(Protocol):
    """Checks the queues of one kind."""

    def declared(self, stack: Stack, account: Account) -> Iterator[CheckResult]:
        """Check the declared resources of the queues."""
        ...

    def existing(self, service: str, settings: Any, account: Account) -> CheckResult:
        """Check an existing queue: ``existing`` of its settings."""
        ...


KINDS: Final[Mapping[str, _Kind]] = {"rabbitmq": rabbitmq, "sqs": sqs}
"""By ``services[].queue.kind``."""


def run(stack: Stack, account: Account) -> Iterator[CheckResult]:
    """Check declared resources, then each referenced queue."""
    for kind in KINDS.values():
        yield from (replace(result, key="services[].queue") for result in kind.declared(stack, account))
    for service in stack.services:
        if service.queue is not None and service.queue.existing is not None:
            result = KINDS[service.queue.kind].existing(service.name, service.queue.existing, account)
            yield replace(result, key=stack.key(service.name, "queue.existing"))
