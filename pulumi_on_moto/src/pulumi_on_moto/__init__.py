"""Run any Pulumi program of AWS resources against moto: functions and event rules included.

Example::

    from pulumi_on_moto import deliver, deploy, load, sandbox

    stack = load("shop", "dev")  # shop/Pulumi.yaml, shop/Pulumi.dev.yaml
    with sandbox(stack.region) as clients:
        shop = deploy(clients, stack)
        deliver(shop, {"source": "shop", "detail-type": "Order placed", "detail": {"id": "7"}})
        print(clients("dynamodb").scan(TableName=shop.outputs["orders"])["Items"])
"""

from pulumi_declared.errors import UserError
from pulumi_declared.monitor import Resource
from pulumi_declared.stackfile import StackConfig, load
from pulumi_on_moto.errors import LocalCloudError
from pulumi_on_moto.mapping import register
from pulumi_on_moto.mapping.base import Draft, Made, Spec
from pulumi_on_moto.program.given import given_network, given_policies
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
    "Deployment",
    "Draft",
    "Invocation",
    "LocalCloudError",
    "Made",
    "Resource",
    "Spec",
    "StackConfig",
    "UserError",
    "changes",
    "deliver",
    "deploy",
    "given_network",
    "given_policies",
    "invoke",
    "load",
    "outline",
    "register",
    "sandbox",
    "tick",
    "tree",
    "up",
]
