"""Deployment of a stack into the local cloud, with the existing resources that its file names."""

from __future__ import annotations

import itertools
from typing import Final

from gpu_spot.declared.stackfile import StackConfig
from gpu_spot.preflight.stack import settings_of
from gpu_spot.progress import progress
from infra.schema import Settings
from pulumi_on_moto import (
    AwsClients,
    Deployment,
    deploy,
    existing_certificates,
    existing_network,
    existing_policies,
    existing_zones,
)

START: Final = 1_767_571_200.0
"""Start of every rehearsal: 2026-01-05 00:00 UTC, a Monday. Fixed, to make runs comparable."""
_CALLERS: Final = "vpc-0ca11e45"
"""VPC of the brokers' allowed sources."""


def deployed(clients: AwsClients, config: StackConfig) -> Deployment:
    """Deploy a stack into the local cloud, after creating the existing resources that its file names.

    Raises ``UserError``, also for invalid settings.
    """
    with progress(f"declaring stack {config.stack} in the local cloud"):
        make_given(settings_of(config), clients)
        return deploy(clients, config)


def make_given(settings: Settings, clients: AwsClients) -> None:
    """Create the existing networks, security groups, names and policies that a stack file names."""
    network, addresses = settings.network, [s.http for s in settings.services if s.http is not None]
    if network.vpc_id is not None:
        subnets = [*dict.fromkeys(subnet for address in addresses for subnet in address.subnets)]
        more = [*zip(itertools.cycle(network.zones), subnets, strict=False)]
        existing_network(clients, network.vpc_id, network.subnets, network.security_groups, more)
    existing_certificates(
        clients,
        {
            address.certificate_arn: address.domain or "example.com"
            for address in addresses
            if address.certificate_arn is not None
        },
    )
    existing_zones(
        clients,
        {
            address.hosted_zone_id: address.domain.partition(".")[2]
            for address in addresses
            if address.hosted_zone_id is not None and address.domain is not None
        },
    )
    if settings.source_security_groups:
        existing_network(clients, _CALLERS, {}, settings.source_security_groups)
    if (deploys := settings.identity.deploys) is not None:
        existing_policies(clients, (*deploys.policies, *deploys.drift_policies))
