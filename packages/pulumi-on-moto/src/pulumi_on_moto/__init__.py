"""Run any Pulumi program of AWS resources against moto, with its functions and event rules: see README.

A name is imported when it is first used: pulumi, boto3 and moto take seconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pulumi_on_moto.emulator import AwsClients, sandbox
    from pulumi_on_moto.errors import LocalCloudError
    from pulumi_on_moto.mapping import register
    from pulumi_on_moto.mapping.base import CreatedResource, ResourceRequest, Spec
    from pulumi_on_moto.program.deployment import Deployment, deliver, deploy, invoke, tick
    from pulumi_on_moto.program.existing import (
        existing_certificates,
        existing_network,
        existing_policies,
        existing_zones,
    )
    from pulumi_on_moto.program.monitor import Resource
    from pulumi_on_moto.program.second_run import Change, changes, up
    from pulumi_on_moto.program.stackfile import Stack, StackConfig, load
    from pulumi_on_moto.program.tree import outline, tree
    from pulumi_on_moto.running.functions import Invocation
else:
    _NAMES = {
        "emulator": ("AwsClients", "sandbox"),
        "errors": ("LocalCloudError",),
        "mapping": ("register",),
        "mapping.base": ("CreatedResource", "ResourceRequest", "Spec"),
        "program.existing": tuple(
            f"existing_{kind}" for kind in ("certificates", "network", "policies", "zones")
        ),
        "program.monitor": ("Resource",),
        "program.deployment": ("Deployment", "deliver", "deploy", "invoke", "tick"),
        "program.second_run": ("Change", "changes", "up"),
        "program.stackfile": ("Stack", "StackConfig", "load"),
        "program.tree": ("outline", "tree"),
        "running.functions": ("Invocation",),
    }

    def __getattr__(name):
        from importlib import import_module

        for module, names in _NAMES.items():
            if name in names:
                value = globals()[name] = getattr(import_module(f"{__name__}.{module}"), name)
                return value
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


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
