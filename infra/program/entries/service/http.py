"""The address of a service: security groups, load balancer and proxies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import pulumi

from contracts.agent.config import HttpProxy
from infra.components.http.alarms import HttpAlarmsArgs, alarms
from infra.components.http.load_balancer import HttpLoadBalancer, HttpLoadBalancerArgs
from infra.components.http.proxies import PART, HttpProxies, HttpProxiesArgs
from infra.components.http.security_groups import HttpSecurityGroups, HttpSecurityGroupsArgs
from infra.components.monitoring import dashboard
from infra.components.monitoring.alarm_spec import AlarmSpec
from infra.components.monitoring.dashboard import DashboardRow
from infra.program.foundation import Foundation
from infra.schema import Service
from infra.schema.services.http import Http
from userdata.agent.aws.permissions import Need

NEEDS: Final[frozenset[Need]] = frozenset({"proxy"})
"""Needs of proxies."""


@dataclass(frozen=True)
class DeclaredHttp:
    """A service's address, the security group of its workers, and its part of monitoring."""

    address: pulumi.Output[str]
    workers_security_group_id: pulumi.Output[str]
    alarms: Sequence[AlarmSpec]
    row: DashboardRow
    bucket_arns: Sequence[pulumi.Output[str]]


def declare(service: Service, settings: Http, foundation: Foundation) -> DeclaredHttp:
    """Declare the address of a service and what serves it."""
    scope, name, child = foundation.scope, service.name, foundation.scope.child_options
    groups = HttpSecurityGroups(
        scope.name(name, "http"),
        HttpSecurityGroupsArgs(scope, name, settings, service.max_slots, foundation.network),
        child,
    )
    balancer = HttpLoadBalancer(
        scope.name(name, "http"),
        HttpLoadBalancerArgs(scope, name, settings, foundation.network, groups.load_balancer_id),
        child,
    )
    HttpProxies(
        scope.name(name, PART),
        HttpProxiesArgs(
            scope=scope,
            service=name,
            settings=settings.proxies,
            proxy=proxy(service, settings),
            network=foundation.network,
            store=foundation.store,
            registry_table=foundation.state.registry.name,
            # The stack's buckets are for workers.
            access=replace(foundation.access(NEEDS), buckets=()),
            security_group_id=groups.proxies_id,
            load_balancer=balancer,
            log_retention_days=foundation.log_retention_days,
        ),
        child,
    )
    alarm_args = HttpAlarmsArgs(scope.stack, name, balancer.arn_suffix, balancer.target_group_suffix)
    return DeclaredHttp(
        balancer.address,
        groups.workers_id,
        tuple(alarms(alarm_args)),
        dashboard.http_row(scope, name, balancer.arn_suffix),
        balancer.bucket_arns,
    )


def proxy(service: Service, settings: Http) -> HttpProxy:
    """Return what HAProxy does for a service, in the format of the node agent."""
    hosts = service.on_premises.hosts if service.on_premises is not None else ()
    return HttpProxy(
        workers=settings.workers,
        max_workers=service.max_workers,
        max_slots=service.max_slots,
        concurrency=settings.concurrency,
        proxies=settings.proxies.count,
        idle_timeout_seconds=settings.idle_timeout,
        retries=settings.retries,
        retry_paths=settings.retry_paths,
        is_grpc=settings.protocol == "grpc",
        hosts=tuple(host.address for host in hosts if host.address is not None),
    )
