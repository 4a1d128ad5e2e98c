"""Amazon MQ brokers for RabbitMQ: validation, endpoint names, and users, which are not stored.

Sources: ``CreateBroker`` in botocore's model (users, subnets, names, passwords, upgrades); AWS's messages in
hashicorp/terraform-provider-aws 41374 (one user) and 46883 (versions, upgrades), 33514 (security groups);
Amazon MQ guide, "Simple authentication and authorization"; Amazon MQ API, ``CreateUser``.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Iterable
from typing import Any, Final

from moto.core.exceptions import ServiceException
from moto.mq import models
from moto.mq.models import Broker, MQBackend, User

from pulumi_on_moto.fixes import Patches

_VERSIONS: Final = ("4.2", "3.13")


class _BadRequestError(ServiceException):
    code = "BadRequestException"


class _ConflictError(ServiceException):
    code = "ConflictException"


def _checked(create: Callable[..., tuple[str, str]]) -> Callable[..., tuple[str, str]]:
    def created(backend: MQBackend, **arguments: Any) -> tuple[str, str]:
        name = arguments["broker_name"]
        if not re.fullmatch(r"[0-9A-Za-z_-]{1,50}", name):
            raise _BadRequestError(f"Broker name [{name}] is invalid.")
        if any(broker.name == name for broker in backend.brokers.values()):
            raise _ConflictError(f"A broker with the requested broker name [{name}] already exists.")
        if arguments["engine_type"].upper() == "RABBITMQ":
            _check(arguments)
        return create(backend, **arguments)

    return created


def _check(arguments: dict[str, Any]) -> None:
    users, subnets = arguments["users"] or [], arguments["subnet_ids"] or []
    version = arguments["engine_version"]
    if version not in _VERSIONS:
        raise _BadRequestError(
            f"Invalid broker engine version [{version}] for RABBITMQ (valid: {', '.join(_VERSIONS)})"
        )
    if not arguments["auto_minor_version_upgrade"]:
        raise _BadRequestError(f"RabbitMQ {version} requires autoMinorVersionUpgrade set to true")
    if len(users) != 1:
        raise _BadRequestError("Specify exactly one user for engine type [RABBITMQ].")
    password = users[0]["Password"]
    if len(password) < 12 or len(set(password)) < 4 or set(password) & set(",:="):
        raise _BadRequestError("The password of the user is invalid.")
    if arguments["deployment_mode"] == "SINGLE_INSTANCE" and len(subnets) > 1:
        raise _BadRequestError("Specify exactly one subnet for deployment mode [SINGLE_INSTANCE].")
    if arguments["deployment_mode"] == "ACTIVE_STANDBY_MULTI_AZ":
        raise _BadRequestError("Deployment mode [ACTIVE_STANDBY_MULTI_AZ] is of ActiveMQ.")
    if arguments["publicly_accessible"] and arguments["security_groups"]:
        raise _BadRequestError("Public brokers of RabbitMQ take no security groups.")


def _named(init: Callable[..., None]) -> Callable[..., None]:
    def initialise(broker: Broker, *arguments: Any, **keywords: Any) -> None:
        init(broker, *arguments, **keywords)
        if broker.engine_type.upper() == "RABBITMQ":
            host = f"b-{broker.id}.mq.{keywords['region']}.amazonaws.com"
            # A cluster also has one, its load balancer.
            broker.instances = [{"consoleURL": f"https://{host}", "endpoints": [f"amqps://{host}:5671"]}]

    return initialise


def _changed(update: Callable[..., None]) -> Callable[..., None]:
    def updated(broker: Broker, **arguments: Any) -> None:
        if broker.engine_type.upper() == "RABBITMQ" and arguments.get("security_groups"):
            raise _BadRequestError("Changing security groups is not supported for RabbitMQ brokers.")
        update(broker, **arguments)

    return updated


_BROKER_HOST: Final = re.compile(r"b-[0-9a-f-]+\.mq\.[a-z0-9-]+\.amazonaws\.com")


def _reject_unknown(look_up: Callable[..., Any]) -> Callable[..., Any]:
    """These brokers have no server; skip DNS, which may be slow."""

    def looked_up(host: Any, *arguments: Any, **keywords: Any) -> Any:
        if isinstance(host, str) and _BROKER_HOST.fullmatch(host):
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return look_up(host, *arguments, **keywords)

    return looked_up


def _is_rabbitmq(broker: Broker) -> bool:
    return bool(broker.engine_type.upper() == "RABBITMQ")


def _refused(create: Callable[..., None]) -> Callable[..., None]:
    def created(backend: MQBackend, broker_id: str, *arguments: Any, **keywords: Any) -> None:
        if _is_rabbitmq(backend.describe_broker(broker_id)):
            raise _BadRequestError("Users of a RabbitMQ broker are managed by RabbitMQ.")
        create(backend, broker_id, *arguments, **keywords)

    return created


def _shown(broker: Broker) -> Iterable[User]:
    return () if _is_rabbitmq(broker) else broker._users.values()


PATCHES: Final[Patches] = (
    (MQBackend, "create_broker", _checked(MQBackend.create_broker)),
    (models.Broker, "__init__", _named(Broker.__init__)),
    (models.Broker, "update", _changed(Broker.update)),
    (socket, "getaddrinfo", _reject_unknown(socket.getaddrinfo)),
    (MQBackend, "create_user", _refused(MQBackend.create_user)),
    (Broker, "users", property(_shown)),
    (Broker, "list_users", _shown),
)
