"""The address of a service: security groups, load balancer and proxies."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from contracts.agent.config import HttpProxy
from infra.components.http.alarms import HttpAlarmsArgs, alarms
from infra.components.http.declared_http import DeclaredHttp, HttpCluster
from infra.components.http.load_balancer import HttpLoadBalancer, HttpLoadBalancerArgs
from infra.components.http.proxies import PART, HttpProxies, HttpProxiesArgs
from infra.components.http.security_groups import HttpSecurityGroups, HttpSecurityGroupsArgs
from infra.components.monitoring import dashboard
from infra.program.foundation import Foundation
from infra.schema import Service
from infra.schema.services.http import Http
from userdata.agent.aws.permissions import Need


def needs(services: Iterable[Service]) -> frozenset[Need]:
    """Return the needs of the proxies of services; those of pods call no API of AWS to find them."""
    needed: set[Need] = set()
    for service in services:
        if service.http is not None:
            needed |= {"proxy"} if service.runs_on == "kubernetes" else {"proxy", "proxied_instances"}
    return frozenset(needed)


def declare(
    service: Service, settings: Http, foundation: Foundation, cluster: HttpCluster | None = None
) -> DeclaredHttp:
    """Declare the address of a service and what serves it; ``cluster`` has the pods of its workers."""
    scope, name, child = foundation.scope, service.name, foundation.scope.child_options
    groups = HttpSecurityGroups(
        scope.name(name, "http"),
        HttpSecurityGroupsArgs(
            scope,
            name,
            settings,
            service.max_slots_of_a_host,
            foundation.network,
            cluster.security_group_id if cluster is not None else None,
        ),
        child,
    )
    balancer = HttpLoadBalancer(
        scope.name(name, "http"),
        HttpLoadBalancerArgs(scope, name, settings, foundation.network, groups.load_balancer_id),
        child,
    )
    settings_of_proxies = proxy(service, settings)
    proxies = HttpProxies(
        scope.name(name, PART),
        HttpProxiesArgs(
            scope=scope,
            service=name,
            settings=settings.proxies,
            proxy=settings_of_proxies
            if cluster is None
            else cluster.pods.apply(lambda pods: replace(settings_of_proxies, pods=pods)),
            network=foundation.network,
            store=foundation.store,
            registry_table=foundation.state.registry.name,
            # The stack's buckets are for workers.
            access=replace(foundation.access(needs([service])), buckets=()),
            security_group_id=groups.proxies_id,
            load_balancer=balancer,
            log_retention_days=foundation.log_retention_days,
        ),
        child,
    )
    alarm_args = HttpAlarmsArgs(scope.stack, name, balancer.arn_suffix, balancer.target_group_suffix)
    declared = DeclaredHttp(
        balancer.address,
        groups.workers_id,
        proxies.role_arn,
        tuple(alarms(alarm_args)),
        dashboard.http_row(scope, name, balancer.arn_suffix),
    )
    foundation.addresses[name] = declared
    return declared


def proxy(service: Service, settings: Http) -> HttpProxy:
    """Return what HAProxy does for a service, in the format of the node agent."""
    hosts = service.on_premises.hosts if service.on_premises is not None else ()
    return HttpProxy(
        workers=settings.workers,
        max_workers=service.max_workers,
        max_slots=service.max_slots_of_a_host,
        concurrency=settings.concurrency,
        proxies=settings.proxies.count,
        idle_timeout_seconds=settings.idle_timeout,
        retries=settings.retries,
        retry_paths=settings.retry_paths,
        is_grpc=settings.protocol == "grpc",
        hosts=tuple(host.address for host in hosts if host.address is not None),
    )
