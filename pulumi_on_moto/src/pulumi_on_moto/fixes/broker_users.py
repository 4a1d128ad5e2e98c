"""Users of RabbitMQ brokers, which Amazon MQ neither stores nor changes.

Source: Amazon MQ guide, "Simple authentication and authorization"; Amazon MQ API, ``CreateUser``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from moto.core.exceptions import ServiceException
from moto.mq.models import Broker, MQBackend, User

from pulumi_on_moto.fixes.fix import Fix


class _UsersManagedError(ServiceException):
    code = "BadRequestException"


def _is_rabbitmq(broker: Broker) -> bool:
    return bool(broker.engine_type.upper() == "RABBITMQ")


def _refused(create: Callable[..., None]) -> Callable[..., None]:
    def created(backend: MQBackend, broker_id: str, *arguments: Any, **keywords: Any) -> None:
        if _is_rabbitmq(backend.describe_broker(broker_id)):
            raise _UsersManagedError("Users of a RabbitMQ broker are managed by RabbitMQ.")
        create(backend, broker_id, *arguments, **keywords)

    return created


def _shown(broker: Broker) -> Iterable[User]:
    return () if _is_rabbitmq(broker) else broker._users.values()


BROKER_USERS = Fix(
    "users of RabbitMQ brokers",
    moto="returns users of RabbitMQ brokers, and CreateUser adds one",
    aws="neither stores nor returns them, and CreateUser is for ActiveMQ",
    patches=(
        (MQBackend, "create_user", _refused(MQBackend.create_user)),
        (Broker, "users", property(_shown)),
        (Broker, "list_users", _shown),
    ),
)
