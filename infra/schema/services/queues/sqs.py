"""The shape of ``services[].queue`` on SQS: two queues of the stack's own, or two that are there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import Field, ValidationInfo, field_validator

from contracts import limits
from contracts.agent import config as agent
from infra.schema.base import Model
from infra.schema.services.queues.settings import OldestSeconds, QueueSettings
from userdata.agent.aws.permissions import Need

SqsName: TypeAlias = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,55}$")]
"""SQS takes 80 characters, and clients' queues of answers are named after it."""


class ExistingSqs(Model):
    """Standard queues in this account and region."""

    queue: SqsName
    """A standard queue of this account and region."""
    dead_letters: SqsName
    """Where it sends its dead letters."""


class SqsQueue(QueueSettings):
    """The queue of SQS that a service's workers read, with a dead-letter queue behind it.

    SQS refuses nothing because it is full. With ``existing`` no queue is declared.
    """

    title: ClassVar[str] = "SQS"
    has_secret: ClassVar[bool] = False
    need: ClassVar[Need] = "sqs"

    kind: Literal["sqs"]
    """Amazon SQS."""
    existing: ExistingSqs | None = None
    """Queues that are there, in place of the stack's own."""
    tries: limits.Tries = 20
    """How often a task may be begun; the loss of a worker counts."""
    visibility_seconds: Annotated[int, Field(ge=10, le=43_200)] = 60
    """After so long others see what a lost worker had; a living one extends it."""
    retention_days: Annotated[int, Field(ge=1, le=14)] = 4
    """So long a task is kept; a dead one 14 days."""
    oldest_seconds: OldestSeconds = 900
    """An alarm rings when a task has waited for so long."""

    def for_workers(self, service: str, found: Mapping[str, str]) -> agent.Queue:
        """Return what the agent's configuration says of it; ``found`` has ``name`` and ``url``.

        How it is declared it knows itself.
        """
        return agent.Queue(found["name"], url=found["url"])

    @field_validator("tries", "visibility_seconds", "retention_days")
    @classmethod
    def _of_an_own_queue(cls, given: int, info: ValidationInfo) -> Any:
        default = cls.model_fields[str(info.field_name)].default
        if given != default and info.data.get("existing") is not None:
            raise ValueError(f"{given} beside existing, which says it itself, allowed: for the stack's own")
        return given
