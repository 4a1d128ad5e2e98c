"""The shape of ``services[].queue``: a RabbitMQ broker of the stack's own, or one that is there."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, TypeAlias

from pydantic import Field, ValidationInfo, field_validator

from contracts import limits
from contracts.agent import config as agent
from infra.catalogue import broker_types
from infra.catalogue.broker_types import BrokerMode, EngineVersion
from infra.schema.base import Model
from infra.schema.services.queues.settings import OldestSeconds, QueueSettings
from userdata.agent.aws.permissions import Need

Caller: TypeAlias = Annotated[
    str, Field(pattern=r"^(sg-[0-9a-f]{8,17}|[0-9]{1,3}(\.[0-9]{1,3}){3}/[0-9]{1,2})$")
]
"""Who may reach the broker: a security group, or a network."""


class Maintenance(Model):
    """When AWS may restart the broker for a patch or a change of its own: a day and a time, UTC."""

    day: Literal["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"] = "sunday"
    """Of the week."""
    time: Annotated[str, Field(pattern=r"^([01][0-9]|2[0-3]):[0-5][0-9]$")] = "03:00"
    """UTC."""


class OwnBroker(NamedTuple):
    """A broker that the stack declares: the settings of a ``Queue`` without ``existing``, all there."""

    engine_version: EngineVersion
    deployment: BrokerMode
    instance_type: str
    callers: tuple[str, ...]
    maintenance: Maintenance


class ExistingBroker(Model):
    """A broker that is there."""

    secret: limits.SecretName
    """The secret with its URL, ``amqps://user:password@host:port``."""
    management_url: (
        Annotated[str, Field(pattern=r"^https://[A-Za-z0-9.-]+(:[0-9]{1,5})?(/[\w./-]*)?$")] | None
    ) = None
    """Of its management API; left out, port 443 of a broker of Amazon MQ, 15671 of another."""


class Queue(QueueSettings):
    """The queue in RabbitMQ that a service's workers read, as ``spot_work`` declares it.

    With ``existing`` nothing is declared. Else the stack has a broker of Amazon MQ, private, reached by the
    workers and by ``callers``.
    """

    title: ClassVar[str] = "RabbitMQ"
    has_secret: ClassVar[bool] = True
    need: ClassVar[Need] = "queue"

    kind: Literal["rabbitmq"]
    """In RabbitMQ."""
    existing: ExistingBroker | None = None
    """A broker that is there, in place of one of the stack's own."""
    name: limits.QueueName | None = None
    """Left out, the service's."""
    tries: limits.Tries = 20
    """How often a task may be begun; the loss of a worker counts."""
    most: limits.MostWaiting = 100_000
    """How many may wait; 0: no limit."""
    oldest_seconds: OldestSeconds = 900
    """An alarm rings when a task has waited for so long."""
    engine_version: EngineVersion | None = Field(default_factory=lambda given: _unless_existing(given, "4.2"))
    """RabbitMQ's, of those that Amazon MQ has; left out, 4.2."""
    deployment: BrokerMode | None = Field(default_factory=lambda given: _unless_existing(given, "single"))
    """A cluster has three nodes in as many zones; a single one is away while AWS restarts it. Left out,
    ``single``."""
    instance_type: str | None = None
    """The broker's; needed without ``existing``."""
    callers: Annotated[tuple[Caller, ...], Field(max_length=20)] = ()
    """Security groups and private networks that may reach the broker, beside the workers."""
    maintenance: Maintenance | None = Field(
        default_factory=lambda given: _unless_existing(given, Maintenance())
    )
    """When AWS may restart it; left out, on Sunday at 03:00 UTC."""

    @property
    def own(self) -> OwnBroker | None:
        """The broker that the stack declares for it; None: one that is there."""
        if self.engine_version and self.deployment and self.instance_type and self.maintenance:
            return OwnBroker(
                self.engine_version, self.deployment, self.instance_type, self.callers, self.maintenance
            )
        return None

    @property
    def most_waiting(self) -> int:
        """How many may wait; 0: no limit."""
        return self.most

    @property
    def caller_groups(self) -> tuple[str, ...]:
        """Security groups of others that may reach the broker."""
        return tuple(one for one in self.callers if one.startswith("sg-"))

    def for_workers(self, service: str, found: Mapping[str, str]) -> agent.Queue:
        """Return what the agent's configuration says of it; ``found`` has ``secret``, a name."""
        return agent.Queue(self.name or service, secret=found["secret"], tries=self.tries, most=self.most)

    @field_validator("name")
    @classmethod
    def _not_the_brokers(cls, name: str | None) -> str | None:
        if name is not None and name.startswith("amq."):
            raise ValueError(
                f"{name!r} is a name of the broker's own, allowed: names without 'amq.' in front"
            )
        return name

    @field_validator("engine_version", "deployment", "instance_type", "callers", "maintenance")
    @classmethod
    def _of_an_own_broker(cls, given: Any, info: ValidationInfo) -> Any:
        if given not in (None, ()) and info.data.get("existing") is not None:
            shown = given.model_dump() if isinstance(given, Maintenance) else given
            raise ValueError(f"{shown!r} beside existing, allowed: for a broker of the stack's own")
        return given

    @field_validator("instance_type")
    @classmethod
    def _runs_it(cls, kind: str | None, info: ValidationInfo) -> str | None:
        if info.data.get("existing", "") is not None:
            return kind
        if kind is None:
            raise ValueError("missing, allowed: such as 'mq.m7g.large' ('mq.m7g.medium' for tests)")
        version, deployment = info.data.get("engine_version"), info.data.get("deployment")
        if version is not None and deployment is not None:
            broker_types.check(version, deployment, kind)
        return kind

    @field_validator("callers")
    @classmethod
    def _networks(cls, callers: tuple[str, ...]) -> tuple[str, ...]:
        for caller in callers:
            if callers.count(caller) > 1:
                raise ValueError(f"{caller} stands twice, allowed: each caller once")
            if not caller.startswith("sg-"):
                _check_network(caller)
        return callers


def _unless_existing(given: dict[str, Any], value: Any) -> Any:
    return None if given.get("existing") else value


def _check_network(cidr: str) -> None:
    try:
        network = ipaddress.IPv4Network(cidr)
    except ValueError as error:
        raise ValueError(f"not an IPv4 network ({error}), allowed: such as 10.30.0.0/16") from None
    if not network.is_private:
        raise ValueError(
            f"{cidr} is not for private use, and the broker is private, allowed: private networks"
        )
