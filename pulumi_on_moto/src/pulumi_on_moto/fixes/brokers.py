"""Brokers of RabbitMQ that AWS refuses, and the names by which theirs are reached.

Sources: ``CreateBroker`` in botocore's model (users, subnets, names, passwords, upgrades); AWS's own words in
hashicorp/terraform-provider-aws 41374 (one user) and 46883 (versions, upgrades), 33514 (security groups).
"""

from __future__ import annotations

import re
import socket
from collections.abc import Callable
from typing import Any, Final

from moto.core.exceptions import ServiceException
from moto.mq import models
from moto.mq.models import Broker, MQBackend

from pulumi_on_moto.fixes.fix import Fix

_VERSIONS: Final = ("4.2", "3.13")


class _BadRequestError(ServiceException):
    code = "BadRequestException"


class _ConflictError(ServiceException):
    code = "ConflictException"


def _checked(create: Callable[..., tuple[str, str]]) -> Callable[..., tuple[str, str]]:
    def created(backend: MQBackend, **given: Any) -> tuple[str, str]:
        name = given["broker_name"]
        if not re.fullmatch(r"[0-9A-Za-z_-]{1,50}", name):
            raise _BadRequestError(f"Broker name [{name}] is invalid.")
        if any(broker.name == name for broker in backend.brokers.values()):
            raise _ConflictError(f"A broker with the requested broker name [{name}] already exists.")
        if given["engine_type"].upper() == "RABBITMQ":
            _check(given)
        return create(backend, **given)

    return created


def _check(given: dict[str, Any]) -> None:
    users, subnets = given["users"] or [], given["subnet_ids"] or []
    version = given["engine_version"]
    if version not in _VERSIONS:
        raise _BadRequestError(
            f"Invalid broker engine version [{version}] for RABBITMQ (valid: {', '.join(_VERSIONS)})"
        )
    if not given["auto_minor_version_upgrade"]:
        raise _BadRequestError(f"RabbitMQ {version} requires autoMinorVersionUpgrade set to true")
    if len(users) != 1:
        raise _BadRequestError("Specify exactly one user for engine type [RABBITMQ].")
    password = users[0]["Password"]
    if len(password) < 12 or len(set(password)) < 4 or set(password) & set(",:="):
        raise _BadRequestError("The password of the user is invalid.")
    if given["deployment_mode"] == "SINGLE_INSTANCE" and len(subnets) > 1:
        raise _BadRequestError("Specify exactly one subnet for deployment mode [SINGLE_INSTANCE].")
    if given["deployment_mode"] == "ACTIVE_STANDBY_MULTI_AZ":
        raise _BadRequestError("Deployment mode [ACTIVE_STANDBY_MULTI_AZ] is of ActiveMQ.")
    if given["publicly_accessible"] and given["security_groups"]:
        raise _BadRequestError("Public brokers of RabbitMQ take no security groups.")


def _named(init: Callable[..., None]) -> Callable[..., None]:
    def made(broker: Broker, *arguments: Any, **given: Any) -> None:
        init(broker, *arguments, **given)
        if broker.engine_type.upper() == "RABBITMQ":
            host = f"b-{broker.id}.mq.{given['region']}.amazonaws.com"
            # One for a whole cluster, too: its load balancer.
            broker.instances = [{"consoleURL": f"https://{host}", "endpoints": [f"amqps://{host}:5671"]}]

    return made


def _changed(update: Callable[..., None]) -> Callable[..., None]:
    def updated(broker: Broker, **given: Any) -> None:
        if broker.engine_type.upper() == "RABBITMQ" and given.get("security_groups"):
            raise _BadRequestError("Changing security groups is not supported for RabbitMQ brokers.")
        update(broker, **given)

    return updated


_BROKER_HOST: Final = re.compile(r"b-[0-9a-f-]+\.mq\.[a-z0-9-]+\.amazonaws\.com")


def _known(look_up: Callable[..., Any]) -> Callable[..., Any]:
    """Nobody answers for these brokers, and the machine's own DNS is not asked, which may take its time."""

    def looked_up(host: Any, *arguments: Any, **given: Any) -> Any:
        if isinstance(host, str) and _BROKER_HOST.fullmatch(host):
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return look_up(host, *arguments, **given)

    return looked_up


BROKERS: Final = Fix(
    "brokers of RabbitMQ",
    moto="CreateBroker takes any version, name, password, any number of users and subnets; all brokers are "
    "reached by one name; UpdateBroker changes security groups",
    aws="refuses what it does not sell, other than one user, and new security groups; each broker has a name "
    "of its own",
    patches=(
        (MQBackend, "create_broker", _checked(MQBackend.create_broker)),
        (models.Broker, "__init__", _named(Broker.__init__)),
        (models.Broker, "update", _changed(Broker.update)),
        (socket, "getaddrinfo", _known(socket.getaddrinfo)),
    ),
)
