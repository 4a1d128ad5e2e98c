"""A stack before it is deployed: what its file says, and what the program declares for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from infra.schema import Settings
from infra.settings import SettingsError, load_settings
from pulumi_on_moto import (
    AwsClients,
    LocalCloudError,
    StackConfig,
    deploy,
    given_network,
    given_policies,
    load,
    sandbox,
)

_PROFILE_KEY: Final = "aws:profile"
_SOME_IMAGE: Final = "ami-0123456789abcdef0"
_CALLERS: Final = "vpc-0ca11e45"
"""A network of those who call brokers."""
_OF_AWS: Final = "/aws/service/"


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
    """Read a stack file and run the program once in an empty local cloud to see what it declares.

    Raises:
        LocalCloudError: the file is wrong, or the program cannot be run.
    """
    return declare(load(folder, name))


def declare(config: StackConfig) -> Stack:
    """Run the program once with what a stack file says, as ``read`` does."""
    try:
        settings = load_settings(config.values)
    except SettingsError as error:
        raise LocalCloudError(str(error)) from None
    with sandbox(config.region) as clients:
        _own_images(settings, clients)
        make_given(settings, clients)
        deployment = deploy(clients, config)
    declared = [
        Declared(one.type, one.name, one.inputs) for one in deployment.resources if not one.is_component
    ]
    return Stack(config.stack, settings.on_instances, declared, config.values.get(_PROFILE_KEY))


def make_given(settings: Settings, clients: AwsClients) -> None:
    """Put what a stack file says is there into the local cloud: networks, security groups, policies."""
    network = settings.network
    if network.vpc_id is not None:
        given_network(clients, network.vpc_id, network.subnets, network.security_groups)
    if settings.caller_groups:
        given_network(clients, _CALLERS, {}, settings.caller_groups)
    if (deploys := settings.identity.deploys) is not None:
        given_policies(clients, (*deploys.policies, *deploys.drift_policies))


def _own_images(settings: Settings, clients: AwsClients) -> None:
    """Put a user's own image parameters into the local cloud, for the program may look them up."""
    named = {image for capacity in settings.capacities.values() for image in capacity.images}
    for image in sorted(named):
        if image.startswith("/") and not image.startswith(_OF_AWS):
            clients("ssm").put_parameter(Name=image, Value=_SOME_IMAGE, Type="String")
