"""Settings of ``services[].queue`` in RabbitMQ: a created broker in Amazon MQ, or an existing broker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, TypeAlias

from pydantic import Field, ValidationInfo, field_validator

from contracts import limits
from contracts.agent import config as agent
from infra.catalogue import broker_types
from infra.catalogue.broker_types import BrokerMode, EngineVersion
from infra.schema.base import Model, check_private_networks, each_once
from infra.schema.services.queues.settings import MaxMessageAgeSeconds, QueueSettings
from userdata.agent.aws.permissions import Need

AllowedSource: TypeAlias = Annotated[
    str, Field(pattern=r"^(sg-[0-9a-f]{8,17}|[0-9]{1,3}(\.[0-9]{1,3}){3}/[0-9]{1,2})$")
]
"""A security group or CIDR block that may connect to the broker."""


class Maintenance(Model):
    """Start of the weekly maintenance window in which AWS may restart the broker."""

    day: Literal["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"] = "sunday"
    """Day of the week."""
    time: Annotated[str, Field(pattern=r"^([01][0-9]|2[0-3]):[0-5][0-9]$")] = "03:00"
    """Time of day (UTC)."""


class CreatedBroker(NamedTuple):
    """Settings of a broker that the stack creates: those of a ``Queue`` without ``existing``, all set."""

    engine_version: EngineVersion
    deployment: BrokerMode
    instance_type: str
    allowed_sources: tuple[str, ...]
    maintenance: Maintenance


class ExistingBroker(Model):
    """An existing broker: one outside the stack, or the one that the stack creates for another service."""

    secret: limits.SecretName | None = None
    """Name of the Secrets Manager secret with the broker's URL, ``amqps://user:password@host:port``. Required
    without ``brokerOf``."""
    broker_of: limits.Name | None = None
    """Name of the service whose created broker also has this queue, for services that call each other."""
    management_url: (
        Annotated[str, Field(pattern=r"^https://[A-Za-z0-9.-]+(:[0-9]{1,5})?(/[\w./-]*)?$")] | None
    ) = None
    """URL of the management API. Default: port 443 of a broker in Amazon MQ, else port 15671."""

    @field_validator("broker_of")
    @classmethod
    def _secret_or_service(cls, service: str | None, info: ValidationInfo) -> str | None:
        if service is None and info.data.get("secret", "") is None:
            raise ValueError("is required without secret; set secret or brokerOf")
        if service is not None and info.data.get("secret") is not None:
            raise ValueError(f"is {service!r}, but secret is set as well; remove one of them")
        return service

    @field_validator("management_url")
    @classmethod
    def _only_of_a_broker_outside(cls, url: str | None, info: ValidationInfo) -> str | None:
        if url is not None and info.data.get("broker_of") is not None:
            raise ValueError(
                f"is {url!r}, which works only with secret; remove it, because brokerOf names the broker"
            )
        return url


class Queue(QueueSettings):
    """A queue in RabbitMQ. ``spot_work`` declares it.

    Without ``existing`` the stack creates a private broker in Amazon MQ, which accepts connections from the
    workers and from ``allowedSources``. There a function declares it.
    """

    title: ClassVar[str] = "RabbitMQ"
    has_secret: ClassVar[bool] = True
    need: ClassVar[Need] = "queue"
    called_by_functions: ClassVar[tuple[str, ...]] = ("secretsmanager",)

    kind: Literal["rabbitmq"]
    """A queue in RabbitMQ."""
    existing: ExistingBroker | None = None
    """An existing broker, or another service's. Default: the stack creates one."""
    name: limits.QueueName | None = None
    """Name of the queue. Default: the name of the service."""
    calls: Annotated[tuple[limits.Name, ...], Field(max_length=20)] = ()
    """Services on the same broker of the stack to which the workers send requests. Their user may publish to
    no other queue."""
    max_deliveries: limits.MaxDeliveries = 20
    """Maximum number of deliveries of a message. A delivery to a worker that was lost counts."""
    max_length: limits.MaxQueueLength = 100_000
    """Maximum number of waiting messages, above which the queue rejects new ones. 0: no limit."""
    max_message_age_seconds: MaxMessageAgeSeconds = 900
    """Age in seconds of the oldest waiting message above which an alarm is raised."""
    engine_version: EngineVersion | None = Field(
        default_factory=lambda values: _unless_existing(values, "4.2")
    )
    """RabbitMQ version of the created broker. Default: 4.2."""
    deployment: BrokerMode | None = Field(default_factory=lambda values: _unless_existing(values, "single"))
    """``cluster``: three nodes in three zones. ``single``: one node, which is unavailable while AWS
    restarts it. Default: ``single``."""
    instance_type: str | None = None
    """Instance type of the created broker, such as ``mq.m7g.large``. Required without ``existing``."""
    allowed_sources: Annotated[tuple[AllowedSource, ...], Field(max_length=20)] = ()
    """Security groups and CIDR blocks of private networks that may connect to the broker, in addition to the
    workers."""
    maintenance: Maintenance | None = Field(
        default_factory=lambda values: _unless_existing(values, Maintenance())
    )
    """Start of the broker's maintenance window. Default: Sunday at 03:00 UTC."""

    @property
    def created_broker(self) -> CreatedBroker | None:
        """The settings of the broker that the stack creates; None for an existing broker."""
        if self.engine_version and self.deployment and self.instance_type and self.maintenance:
            return CreatedBroker(
                self.engine_version,
                self.deployment,
                self.instance_type,
                self.allowed_sources,
                self.maintenance,
            )
        return None

    @property
    def broker_of(self) -> str | None:
        """The service whose created broker has the queue; None for its own or one outside the stack."""
        return None if self.existing is None else self.existing.broker_of

    @property
    def called_services(self) -> tuple[str, ...]:
        """The services on the same broker to which the workers send requests."""
        return self.calls

    @property
    def creates_broker(self) -> bool:
        """Whether the stack creates a broker that other services can share."""
        return self.created_broker is not None

    def queue_name(self, service: str) -> str:
        """Return the name of the queue of ``service``."""
        return self.name or service

    @property
    def max_waiting(self) -> int:
        """Maximum number of waiting messages; 0: no limit."""
        return self.max_length

    @property
    def source_security_groups(self) -> tuple[str, ...]:
        """Security groups of ``allowedSources``."""
        return tuple(source for source in self.allowed_sources if source.startswith("sg-"))

    def for_workers(self, service: str, attributes: Mapping[str, str]) -> agent.Queue:
        """Return the queue in the format of the node agent; ``attributes`` has the name of the ``secret``."""
        return agent.Queue(
            self.queue_name(service),
            secret=attributes["secret"],
            max_deliveries=self.max_deliveries,
            max_length=self.max_length,
        )

    @field_validator("name")
    @classmethod
    def _not_reserved(cls, name: str | None) -> str | None:
        if name is not None and name.startswith("amq."):
            raise ValueError(f"must not begin with 'amq.', which RabbitMQ reserves; {name!r} does")
        return name

    @field_validator("calls")
    @classmethod
    def _only_with_users(cls, services: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        existing = info.data.get("existing")
        if services and existing is not None and existing.broker_of is None:
            raise ValueError(
                f"is {list(services)}, but works only on a broker that this stack creates; remove it "
                "or existing.secret"
            )
        return services

    @field_validator("engine_version", "deployment", "instance_type", "allowed_sources", "maintenance")
    @classmethod
    def _only_of_a_created_broker(cls, value: Any, info: ValidationInfo) -> Any:
        if value not in (None, ()) and info.data.get("existing") is not None:
            plain = value.model_dump() if isinstance(value, Maintenance) else value
            plain = list(value) if isinstance(value, tuple) else plain
            raise ValueError(
                f"is {plain!r}, but existing names a broker, and this key is for a broker that the "
                "stack creates; remove one of them"
            )
        return value

    @field_validator("instance_type")
    @classmethod
    def _runs_the_version(cls, kind: str | None, info: ValidationInfo) -> str | None:
        if info.data.get("existing", "") is not None:
            return kind
        if kind is None:
            raise ValueError("is required; set a type such as 'mq.m7g.large' ('mq.m7g.medium' for tests)")
        version, deployment = info.data.get("engine_version"), info.data.get("deployment")
        if version is not None and deployment is not None:
            broker_types.check(version, deployment, kind)
        return kind

    @field_validator("allowed_sources")
    @classmethod
    def _valid_sources(cls, sources: tuple[str, ...]) -> tuple[str, ...]:
        check_private_networks(tuple(source for source in each_once(sources) if source[:3] != "sg-"))
        return sources


def _unless_existing(values: dict[str, Any], default: Any) -> Any:
    return None if values.get("existing") else default
