"""A service's workers on premises: the identity of the hosts, and the configuration that they need."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterable
from typing import Any

import pulumi

from contracts.agent import config as agent
from infra.components.identity.hosts import HostIdentity, HostIdentityArgs
from infra.iam.instance_statements import InstanceAccess
from infra.program import agent_config
from infra.program.entries.service.agent_config import queue_of, work
from infra.program.foundation import Foundation
from infra.schema import OnPremises, Service
from infra.scope import Scope
from userdata import render


def declare(accesses: Iterable[tuple[Service, InstanceAccess]], foundation: Foundation) -> None:
    """Declare the identities of hosts on premises and export their configuration."""
    hosts = {
        service.name: _hosts(service, service.on_premises, access, foundation)
        for service, access in accesses
        if service.on_premises is not None
    }
    if hosts:
        foundation.scope.export("onPremises", hosts)


def _hosts(
    service: Service, settings: OnPremises, access: InstanceAccess, foundation: Foundation
) -> dict[str, Any]:
    scope, store = foundation.scope, foundation.store
    # These exist only on instances.
    access = dataclasses.replace(access, job_table="", archives="", buckets=())
    identities = {
        host.name: HostIdentity(
            _identity_name(scope, service.name, host.name),
            HostIdentityArgs(scope, service.name, settings, host, access),
            scope.child_options,
        )
        for host in settings.hosts
    }
    outputs = pulumi.Output.all(foundation.state.registry.name, queue_of(service, foundation))
    return {
        "hosts": {
            name: {"policy": identity.policy_arn, "role": identity.role_arn}
            for name, identity in identities.items()
        },
        "agent": outputs.apply(
            lambda values: render.configuration(_agent(service, scope.region, scope.stack, *values))
        ),
        "archive": pulumi.Output.concat("s3://", store.bucket, "/", store.archive.key),
    }


def _identity_name(scope: Scope, service: str, host: str) -> str:
    """Return the name of a host's role and policy: with the host's name, or a digest if that is too long."""
    try:
        return scope.name(service, "host", host)
    except pulumi.RunError:
        return scope.name(service, "host", hashlib.sha256(host.encode()).hexdigest()[:6])


def _agent(
    service: Service, region: str, stack: str, registry_table: str, queue: agent.Queue | None
) -> agent.Config:
    context = agent_config.InstanceContext(region, stack, "primary", None, agent.Metrics.log_group)
    config = agent_config.build(service, context, registry_table, work(service, queue))
    return dataclasses.replace(config, on_premises=True)
