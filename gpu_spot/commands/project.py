"""The Pulumi project that a command works on: where it is, and how it comes into the local cloud."""

from __future__ import annotations

from pathlib import Path

from infra.settings import SettingsError, load_settings
from pulumi_on_moto import AwsClients, Deployment, StackConfig, deploy, given_network
from pulumi_on_moto.errors import LocalCloudError


def find() -> Path:
    """Return the nearest folder, the current one or above it, that holds ``Pulumi.yaml``."""
    here = Path.cwd()
    for folder in (here, *here.parents):
        if (folder / "Pulumi.yaml").is_file():
            return folder
    raise LocalCloudError(f"no Pulumi.yaml in {here} or above it")


def deployed(clients: AwsClients, config: StackConfig) -> Deployment:
    """Deploy a stack into the local cloud; a network that its file says is there is made before.

    Raises ``LocalCloudError``, for wrong settings too.
    """
    try:
        network = load_settings(config.values).network
    except SettingsError as error:
        raise LocalCloudError(str(error)) from None
    if network.vpc_id is not None:
        given_network(clients, network.vpc_id, network.subnets, network.security_groups)
    return deploy(clients, config)
