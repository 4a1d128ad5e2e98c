"""A stack before it is deployed: what its file says, and what the program declares for it."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from infra.schema import Settings
from infra.settings import SettingsError, load_settings
from pulumi_declared.declaring import declared
from pulumi_declared.errors import UserError
from pulumi_declared.stackfile import StackConfig, load

_PROFILE_KEY: Final = "aws:profile"
_ACCOUNT: Final = "123456789012"
_IMAGE: Final = "ami-0123456789abcdef0"
_CALLERS: Final = "vpc-0ca11e45"
"""A network of those who call brokers."""
_IDS: Final = {
    "aws:efs/fileSystem:FileSystem": "fs-0a1b2c3d",
    "aws:efs/accessPoint:AccessPoint": "fsap-0a1b2c3d",
}
"""Ids whose form the program checks."""


@dataclass(frozen=True, slots=True)
class Declared:
    """One resource of the program: Pulumi's type token, its logical name, its inputs in camelCase."""

    type: str
    name: str
    inputs: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Stack:
    """A stack's name, settings and resources. ``profile`` is the AWS profile that its file names, if any."""

    name: str
    settings: Settings
    declared: Sequence[Declared]
    profile: str | None = None

    @property
    def region(self) -> str:
        """The AWS region."""
        return self.settings.region

    @property
    def zones(self) -> tuple[str, ...]:
        """The availability zones, by their names in this account."""
        return self.settings.network.zones

    def has(self, type_: str) -> bool:
        """Tell whether the program declares a resource of a type."""
        return any(one.type == type_ for one in self.declared)

    def of_type(self, type_: str) -> Iterator[Mapping[str, Any]]:
        """Yield the inputs of the resources of a type."""
        return (one.inputs for one in self.declared if one.type == type_)


def read(folder: Path, name: str) -> Stack:
    """Read a stack file, and see in a process of its own what the program declares.

    The SDK's mocks stay set in the process that lists: it is not the one that asks AWS.

    Raises:
        UserError: the file is wrong, or the program refuses it.
    """
    config = load(folder, name)
    settings_of(config)
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as own:
        return own.submit(declare, config).result()


def settings_of(config: StackConfig) -> Settings:
    """Return what a stack file says; raise ``UserError`` for what is wrong in it."""
    try:
        return load_settings(config.values)
    except SettingsError as error:
        raise UserError(str(error)) from None


def declare(config: StackConfig) -> Stack:
    """Run the program once with what a stack file says; in a process for this alone, which asks nobody."""
    settings = settings_of(config)
    found = [
        Declared(one.type, one.name, one.inputs)
        for one in declared(config, _lookups(settings), _IDS)
        if not one.is_component
    ]
    return Stack(config.stack, settings.on_instances, found, config.values.get(_PROFILE_KEY))


def _lookups(settings: Settings) -> dict[str, Callable[[Mapping[str, Any]], Mapping[str, Any]]]:
    """Return what AWS would answer the program where all is as the stack file says."""
    network = settings.network
    zones = {subnet: zone for zone, subnet in network.subnets.items()}
    in_network = set(network.security_groups)
    region = settings.region
    return {
        "aws:index/getCallerIdentity:getCallerIdentity": lambda _: {"accountId": _ACCOUNT},
        "aws:index/getPartition:getPartition": lambda _: {"partition": "aws"},
        "aws:ec2/getVpcs:getVpcs": lambda _: {"ids": []},
        "aws:ec2/getVpc:getVpc": lambda _: {"enableDnsSupport": True, "enableDnsHostnames": True},
        "aws:ec2/getSubnet:getSubnet": lambda asked: {
            "vpcId": network.vpc_id,
            "availabilityZone": zones[asked["id"]],
            "mapPublicIpOnLaunch": False,
        },
        "aws:ec2/getSecurityGroup:getSecurityGroup": lambda asked: {
            "vpcId": network.vpc_id if asked["id"] in in_network else _CALLERS
        },
        "aws:ec2/getVpcEndpointService:getVpcEndpointService": lambda asked: {
            "serviceName": next(
                name for name in asked["filters"][0]["values"] if name.startswith(f"com.amazonaws.{region}.")
            ),
            "availabilityZones": list(network.zones),
        },
        "aws:ebs/getSnapshot:getSnapshot": lambda _: {
            "state": "completed",
            "encrypted": True,
            "storageTier": "standard",
            "volumeSize": 1,
        },
        "aws:ssm/getParameter:getParameter": lambda _: {"value": _IMAGE, "insecureValue": _IMAGE},
        "aws:eks/getCluster:getCluster": lambda _: {
            "endpoint": "https://cluster.example.com",
            "certificateAuthorities": [{"data": ""}],
        },
        "aws:secretsmanager/getRandomPassword:getRandomPassword": lambda _: {"randomPassword": "drawn"},
    }
