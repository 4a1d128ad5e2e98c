"""The queues of services: if AWS sells what is declared for them, and if those are there that are named."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, Protocol

from gpu_spot.preflight.account import Account
from gpu_spot.preflight.checks.queues import rabbitmq, sqs
from gpu_spot.preflight.remark import Remark
from gpu_spot.preflight.stack import Stack

NAME: Final = "queues"


class _Kind(Protocol):
    """Looks at queues of one kind."""

    def declared(self, stack: Stack, account: Account) -> Iterator[Remark]:
        """Look at what the stack declares for them."""
        ...

    def existing(self, service: str, wanted: Any, account: Account) -> Remark:
        """Look at a queue that is there: ``existing`` of its settings."""
        ...


KINDS: Final[Mapping[str, _Kind]] = {"rabbitmq": rabbitmq, "sqs": sqs}
"""By ``services[].queue.kind``."""


def look(stack: Stack, account: Account) -> Iterator[Remark]:
    """Look at what the stack declares, then at each queue that it only names."""
    for kind in KINDS.values():
        yield from kind.declared(stack, account)
    for service in stack.settings.services:
        if service.queue is not None and service.queue.existing is not None:
            yield KINDS[service.queue.kind].existing(service.name, service.queue.existing, account)
