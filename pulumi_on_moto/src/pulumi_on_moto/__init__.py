"""Run any Pulumi program of AWS resources against moto: functions and event rules included.

Example::

    from pulumi_on_moto import deliver, deploy, load, sandbox

    stack = load("shop", "dev")  # shop/Pulumi.yaml, shop/Pulumi.dev.yaml
    with sandbox(stack.region) as clients:
        shop = deploy(clients, stack)
        deliver(shop, {"source": "shop", "detail-type": "Order placed", "detail": {"id": "7"}})
        print(clients("dynamodb").scan(TableName=shop.outputs["orders"])["Items"])
"""

import warnings
from typing import Any

from pulumi_declared.errors import UserError
from pulumi_declared.monitor import Resource
from pulumi_declared.stackfile import StackConfig, load
from pulumi_on_moto.errors import LocalCloudError
from pulumi_on_moto.mapping import register
from pulumi_on_moto.mapping.base import CreatedResource, ResourceRequest, Spec
from pulumi_on_moto.program.existing import (
    existing_certificates,
    existing_network,
    existing_policies,
    existing_zones,
)
from pulumi_on_moto.program.record import Deployment
from pulumi_on_moto.program.run import deploy
from pulumi_on_moto.program.second_run import Change, changes, up
from pulumi_on_moto.program.tree import outline, tree
from pulumi_on_moto.program.use import deliver, invoke, tick
from pulumi_on_moto.running.functions import Invocation
from pulumi_on_moto.sandbox import AwsClients, sandbox

__all__ = [
    "AwsClients",
    "Change",
    "CreatedResource",
    "Deployment",
    "Invocation",
    "LocalCloudError",
    "Resource",
    "ResourceRequest",
    "Spec",
    "StackConfig",
    "UserError",
    "changes",
    "deliver",
    "deploy",
    "existing_certificates",
    "existing_network",
    "existing_policies",
    "existing_zones",
    "invoke",
    "load",
    "outline",
    "register",
    "sandbox",
    "tick",
    "tree",
    "up",
]


_RENAMED: dict[str, Any] = {
    "Draft": ResourceRequest,
    "Made": CreatedResource,
    "given_network": existing_network,
    "given_policies": existing_policies,
}
"""Old names, accepted for one minor version."""


def __getattr__(name: str) -> Any:
    """Return the object of an old name, with a ``DeprecationWarning``."""
    if name in _RENAMED:
        new = _RENAMED[name]
        warnings.warn(f"{name} is now {new.__name__}", DeprecationWarning, stacklevel=2)
        return new
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
