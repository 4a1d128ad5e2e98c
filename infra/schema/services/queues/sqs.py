"""Settings of ``services[].queue`` in SQS: a created queue and its dead-letter queue, or existing ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import Field, ValidationInfo, field_validator

from contracts import limits
from contracts.agent import config as agent
from infra.schema.base import Model
from infra.schema.services.queues.settings import MaxMessageAgeSeconds, QueueSettings
from userdata.agent.aws.permissions import Need

SqsName: TypeAlias = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,55}$")]
"""Name of a queue. SQS allows 80 characters; the names of clients' reply queues add to it."""


class ExistingSqs(Model):
    """Existing standard queues of the stack's account and Region."""

    queue: SqsName
    """Name of the queue."""
    dead_letters: SqsName
    """Name of its dead-letter queue."""


class SqsQueue(QueueSettings):
    """A queue in Amazon SQS with a dead-letter queue. Its length is not limited.

    Without ``existing`` the stack creates both queues.
    """

    title: ClassVar[str] = "SQS"
    has_secret: ClassVar[bool] = False
    need: ClassVar[Need] = "sqs"

    kind: Literal["sqs"]
    """A queue in Amazon SQS."""
    existing: ExistingSqs | None = None
    """Existing queues. Default: the stack creates them."""
    max_deliveries: limits.MaxDeliveries = 20
    """Maximum number of deliveries of a message. A delivery to a worker that was lost counts."""
    visibility_seconds: Annotated[int, Field(ge=10, le=43_200)] = 60
    """Visibility timeout in seconds: the time after which another worker receives the messages of a lost
    worker. Workers extend it while they process a message."""
    retention_days: Annotated[int, Field(ge=1, le=14)] = 4
    """Retention period of messages in days. The dead-letter queue retains them for 14 days."""
    max_message_age_seconds: MaxMessageAgeSeconds = 900
    """Age in seconds of the oldest waiting message above which an alarm is raised."""

    def for_workers(self, service: str, attributes: Mapping[str, str]) -> agent.Queue:
        """Return the queue in the format of the node agent; ``attributes`` has its ``name`` and ``url``."""
        return agent.Queue(attributes["name"], url=attributes["url"])

    @field_validator("max_deliveries", "visibility_seconds", "retention_days")
    @classmethod
    def _only_of_a_created_queue(cls, value: int, info: ValidationInfo) -> Any:
        default = cls.model_fields[str(info.field_name)].default
        if value != default and info.data.get("existing") is not None:
            raise ValueError(f"{value} with existing, allowed: for a queue that the stack creates")
        return value
