"""Settings of ``services[].queue``, one module for each kind of queue."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from pydantic import Field

from infra.schema.services.queues.rabbitmq import Queue
from infra.schema.services.queues.settings import QueueSettings
from infra.schema.services.queues.sqs import SqsQueue

AnyQueue: TypeAlias = Annotated[Queue | SqsQueue, Field(discriminator="kind")]
MODELS: tuple[type[QueueSettings], ...] = (Queue, SqsQueue)
