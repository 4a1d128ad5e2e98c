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

from moto.mq.exceptions import BadRequestException, ConflictException
from moto.mq.models import Broker, MQBackend, User

from pulumi_on_moto.fixes import Patches, around

_VERSIONS: Final = ("4.2", "3.13")


def _create_broker(create: Callable[..., Any], backend: MQBackend, **arguments: Any) -> Any:
    name = arguments["broker_name"]
    if not re.fullmatch(r"[0-9A-Za-z_-]{1,50}", name):
        raise BadRequestException(f"Broker name [{name}] is invalid.")
    if any(broker.name == name for broker in backend.brokers.values()):
        raise ConflictException(f"A broker with the requested broker name [{name}] already exists.")
    if arguments["engine_type"].upper() == "RABBITMQ":
        _check(arguments)
    return create(backend, **arguments)


def _check(arguments: dict[str, Any]) -> None:
    users, subnets = arguments["users"] or [], arguments["subnet_ids"] or []
    version = arguments["engine_version"]
    if version not in _VERSIONS:
        raise BadRequestException(
            f"Invalid broker engine version [{version}] for RABBITMQ (valid: {', '.join(_VERSIONS)})"
        )
    if not arguments["auto_minor_version_upgrade"]:
        raise BadRequestException(f"RabbitMQ {version} requires autoMinorVersionUpgrade set to true")
    if len(users) != 1:
        raise BadRequestException("Specify exactly one user for engine type [RABBITMQ].")
    password = users[0]["Password"]
    if len(password) < 12 or len(set(password)) < 4 or set(password) & set(",:="):
        raise BadRequestException("The password of the user is invalid.")
    if arguments["deployment_mode"] == "SINGLE_INSTANCE" and len(subnets) > 1:
        raise BadRequestException("Specify exactly one subnet for deployment mode [SINGLE_INSTANCE].")
    if arguments["deployment_mode"] == "ACTIVE_STANDBY_MULTI_AZ":
        raise BadRequestException("Deployment mode [ACTIVE_STANDBY_MULTI_AZ] is of ActiveMQ.")
    if arguments["publicly_accessible"] and arguments["security_groups"]:
        raise BadRequestException("Public brokers of RabbitMQ take no security groups.")


def _initialise(init: Callable[..., None], broker: Broker, *arguments: Any, **keywords: Any) -> None:
    init(broker, *arguments, **keywords)
    if _is_rabbitmq(broker):
        host = f"b-{broker.id}.mq.{keywords['region']}.amazonaws.com"
        # A cluster also has one, its load balancer.
        broker.instances = [{"consoleURL": f"https://{host}", "endpoints": [f"amqps://{host}:5671"]}]


def _update(update: Callable[..., None], broker: Broker, **arguments: Any) -> None:
    if _is_rabbitmq(broker) and arguments.get("security_groups"):
        raise BadRequestException("Changing security groups is not supported for RabbitMQ brokers.")
    update(broker, **arguments)


_BROKER_HOST: Final = re.compile(r"b-[0-9a-f-]+\.mq\.[a-z0-9-]+\.amazonaws\.com")


def _look_up(look_up: Callable[..., Any], host: Any, *arguments: Any, **keywords: Any) -> Any:
    """These brokers have no server; skip DNS, which may be slow."""
    if isinstance(host, str) and _BROKER_HOST.fullmatch(host):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
    return look_up(host, *arguments, **keywords)


def _is_rabbitmq(broker: Broker) -> bool:
    return bool(broker.engine_type.upper() == "RABBITMQ")


def _create_user(
    create: Callable[..., None], backend: MQBackend, broker_id: str, *arguments: Any, **keywords: Any
) -> None:
    if _is_rabbitmq(backend.describe_broker(broker_id)):
        raise BadRequestException("Users of a RabbitMQ broker are managed by RabbitMQ.")
    create(backend, broker_id, *arguments, **keywords)


def _shown(broker: Broker) -> Iterable[User]:
    return () if _is_rabbitmq(broker) else broker._users.values()


PATCHES: Final[Patches] = (
    around(MQBackend, "create_broker", _create_broker),
    around(Broker, "__init__", _initialise),
    around(Broker, "update", _update),
    around(socket, "getaddrinfo", _look_up),
    around(MQBackend, "create_user", _create_user),
    (Broker, "users", property(_shown)),
    (Broker, "list_users", _shown),
)
