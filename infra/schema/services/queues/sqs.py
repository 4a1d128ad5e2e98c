"""Settings of ``services[].queue`` in SQS: a created queue and its dead-letter queue, or existing ones."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final, Literal, TypeAlias

from pydantic import Field, ValidationInfo, field_validator, model_validator

from contracts import limits
from contracts.agent import config as agent
from infra.schema.base import Model, WrongKeyError
from infra.schema.services.queues.settings import MaxMessageAgeSeconds, QueueSettings
from userdata.agent.aws.permissions import Need

SqsName: TypeAlias = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,80}$")]
_ADDRESS: Final = re.compile(
    r"(?:https://sqs\.(?P<region>[a-z0-9-]+)\.amazonaws\.com(?:\.cn)?/|arn:aws[a-z-]*:sqs:(?P<place>[a-z0-9-]+):)"
    r"(?P<account>[0-9]{12})[/:](?P<name>[A-Za-z0-9_.-]+)"
)


class ExistingSqs(Model):
    """Existing standard queues of the stack's account and Region."""

    account: Annotated[str, Field(pattern=r"^[0-9]{12}$")] | None = None
    """ID of their account, which must be the stack's. URLs and ARNs have it."""
    queue: SqsName
    """Name, URL or ARN of the queue."""
    dead_letters: SqsName
    """Name, URL or ARN of its dead-letter queue."""

    @model_validator(mode="before")
    @classmethod
    def _names(cls, values: Any, info: ValidationInfo) -> Any:
        """Replace a URL or ARN by the name."""
        if not isinstance(values, dict):
            return values
        names = dict(values)
        for key in ("queue", "deadLetters"):
            if (match := _ADDRESS.fullmatch(str(values.get(key)))) is None:
                continue
            region, expected = match["region"] or match["place"], (info.context or {}).get("region")
            if expected and region != expected:
                raise WrongKeyError((key,), f"must be a queue in {expected}, not in {region}")
            if names.setdefault("account", match["account"]) != match["account"]:
                raise WrongKeyError(
                    (key,), f"must be a queue of account {names['account']}, not of {match['account']}"
                )
            names[key] = match["name"]
        for key in ("queue", "deadLetters"):
            if str(names.get(key)).endswith(".fifo"):
                raise WrongKeyError((key,), f"must be a standard queue; {names[key]!r} is a FIFO queue")
        if (queue := names.get("queue")) is not None and queue == names.get("deadLetters"):
            raise WrongKeyError(("deadLetters",), f"must be its dead-letter queue, not {queue!r} itself")
        return names


class SqsQueue(QueueSettings):
    """A queue in Amazon SQS with a dead-letter queue. Its length is not limited.

    Without ``existing`` the stack creates both queues.
    """

    title: ClassVar[str] = "SQS"
    has_secret: ClassVar[bool] = False
    need: ClassVar[Need] = "sqs"
    called_by_functions: ClassVar[tuple[str, ...]] = ("monitoring", "sqs")

    kind: Literal["sqs"]
    """A queue in Amazon SQS."""
    existing: ExistingSqs | None = None
    """Existing queues. Default: the stack creates them."""
    max_receive_count: limits.MaxDeliveries = 20
    """Maximum number of deliveries of a message. A delivery to a worker that was lost counts."""
    visibility_timeout: Annotated[int, Field(ge=10, le=43_200)] = 60
    """Visibility timeout in seconds: the time after which another worker receives the messages of a lost
    worker. Workers extend it while they process a message."""
    retention_days: Annotated[int, Field(ge=1, le=14)] = 4
    """Retention period of messages in days. The dead-letter queue retains them for 14 days."""
    max_message_age_seconds: MaxMessageAgeSeconds = 900
    """Age in seconds of the oldest waiting message above which an alarm is raised."""

    def for_workers(self, service: str, attributes: Mapping[str, str]) -> agent.Queue:
        """Return the queue in the format of the node agent; ``attributes`` has its ``name`` and ``url``."""
        return agent.Queue(attributes["name"], url=attributes["url"])

    @field_validator("max_receive_count", "visibility_timeout", "retention_days")
    @classmethod
    def _only_of_a_created_queue(cls, value: int, info: ValidationInfo) -> Any:
        default = cls.model_fields[str(info.field_name)].default
        if value != default and info.data.get("existing") is not None:
            raise ValueError(
                f"is {value}, but existing names a queue, and this key is for a queue that the stack "
                "creates; remove one of them"
            )
        return value
