"""Run any Pulumi program of AWS resources against moto, with its functions and event rules: see README."""

from pulumi_on_moto.errors import LocalCloudError
from pulumi_on_moto.mapping import register
from pulumi_on_moto.mapping.base import CreatedResource, ResourceRequest, Spec
from pulumi_on_moto.program.existing import (
    existing_certificates,
    existing_network,
    existing_policies,
    existing_zones,
)
from pulumi_on_moto.program.monitor import Resource
from pulumi_on_moto.program.record import Deployment
from pulumi_on_moto.program.run import deploy
from pulumi_on_moto.program.second_run import Change, changes, up
from pulumi_on_moto.program.stackfile import Stack, StackConfig, load
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
    "Stack",
    "StackConfig",
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
