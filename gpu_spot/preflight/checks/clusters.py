"""The EKS cluster of entries on Kubernetes: one that exists, or one that the stack creates.

Source: EKS API reference, ``DescribeCluster``, ``DescribeClusterVersions``, ``DescribeAddonVersions`` and
``ListAccessEntries``; EKS user guide, "View Amazon EKS networking requirements for VPC and subnets" (zones
without control planes), "View and manage Amazon EKS and Fargate service quotas", "Understand the Kubernetes
version lifecycle" (with the upgrade policy STANDARD, clusters are created in standard support only).
Controllers inside a cluster cannot be seen through AWS.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from botocore.exceptions import ClientError

from contracts import names
from gpu_spot.preflight.account import Account
from gpu_spot.preflight.check_result import CheckResult
from gpu_spot.preflight.checks.account.permissions import principal
from gpu_spot.preflight.service_quotas import quota
from gpu_spot.preflight.stack import Stack
from infra.schema.cluster.created_cluster import CreatedCluster
from infra.schema.cluster.kubernetes import Kubernetes

NAME: Final = "Kubernetes"

_CLUSTERS_QUOTA: Final = ("eks", "L-1194D53C")
_ZONES_WITHOUT_CONTROL_PLANES: Final = ("use1-az3", "usw1-az2", "cac1-az3")
_SUPPORT_ENDS: Final = timedelta(days=60)
"""A version whose standard support ends sooner is a warning: EKS then upgrades the cluster."""


def run(stack: Stack, account: Account) -> Iterator[CheckResult]:
    """Check the cluster of ``kubernetes``; without it no request is made."""
    kubernetes = stack.settings.kubernetes
    if kubernetes is None:
        return
    cluster = _describe(account.clients("eks"), kubernetes.cluster)
    if kubernetes.create is None:
        yield from _existing(stack, kubernetes, cluster, account)
    else:
        yield from _created(stack, kubernetes, kubernetes.create, cluster, account)


def _describe(eks: Any, name: str) -> dict[str, Any] | None:
    try:
        cluster: dict[str, Any] = eks.describe_cluster(name=name)["cluster"]
    except ClientError as error:
        if error.response["Error"]["Code"] != "ResourceNotFoundException":
            raise
        return None
    return cluster


def _existing(
    stack: Stack, kubernetes: Kubernetes, cluster: dict[str, Any] | None, account: Account
) -> Iterator[CheckResult]:
    name = kubernetes.cluster
    if cluster is None:
        advice = "name a cluster of this account and region, or set kubernetes.create"
        yield CheckResult(name, "failure", "the cluster does not exist", advice, "kubernetes.cluster")
        return
    network = cluster.get("resourcesVpcConfig", {})
    problems = 0
    for result in (
        _status(name, cluster),
        _version(kubernetes, cluster),
        _vpc(stack, name, network),
        _authentication(name, cluster),
        _endpoint(name, network),
        _node_role(kubernetes, account),
        *_for_proxies(stack, name, cluster),
        _access(name, account),
    ):
        if result is not None:
            problems += 1
            yield result
    if not problems:
        yield CheckResult(name, "ok", f"active, Kubernetes {cluster['version']}")
    finding = "controllers inside the cluster cannot be seen through AWS"
    yield CheckResult(name, "not known", finding, "compare it with docs/kubernetes.md", "kubernetes.cluster")


def _status(name: str, cluster: dict[str, Any]) -> CheckResult | None:
    status = cluster.get("status", "")
    if status in ("ACTIVE", "UPDATING"):
        return None
    return CheckResult(
        name, "failure", f"the cluster is {status or 'without a status'}", "wait", "kubernetes.cluster"
    )


def _version(kubernetes: Kubernetes, cluster: dict[str, Any]) -> CheckResult | None:
    if cluster.get("version") == kubernetes.version:
        return None
    finding = f"the cluster has {cluster.get('version')}; objects are rendered for {kubernetes.version}"
    return CheckResult(
        kubernetes.cluster, "failure", finding, "set the cluster's version", "kubernetes.version"
    )


def _vpc(stack: Stack, name: str, network: dict[str, Any]) -> CheckResult | None:
    declared, actual = stack.settings.network.vpc_id, network.get("vpcId")
    if declared is not None and declared == actual:
        return None
    finding = f"the cluster is in {actual}, the stack in {declared or 'a network that it creates'}"
    return CheckResult(name, "failure", finding, "use the cluster's network", "network.vpcId")


def _authentication(name: str, cluster: dict[str, Any]) -> CheckResult | None:
    mode = cluster.get("accessConfig", {}).get("authenticationMode", "CONFIG_MAP")
    if "API" in mode:
        return None
    finding = f"authentication mode {mode} has no access entries"
    return CheckResult(name, "failure", finding, "set API_AND_CONFIG_MAP", "kubernetes.cluster")


def _endpoint(name: str, network: dict[str, Any]) -> CheckResult | None:
    if network.get("endpointPublicAccess"):
        return None
    finding = "the API endpoint is private only: `up` must run inside the VPC"
    return CheckResult(name, "warning", finding, "use a runner or VPN there", "kubernetes.cluster")


def _for_proxies(stack: Stack, name: str, cluster: dict[str, Any]) -> Iterator[CheckResult]:
    """Yield why the proxies of an HTTP service could not reach its pods, or the API that lists them.

    Source: EKS API reference, ``KubernetesNetworkConfigResponse`` (``ipFamily``), ``VpcConfigResponse``.
    """
    if stack.kubernetes is None or all(service.http is None for service in stack.kubernetes.services):
        return
    if cluster.get("kubernetesNetworkConfig", {}).get("ipFamily", "ipv4") != "ipv4":
        finding = "its pods have IPv6 addresses only, which proxies of http do not reach"
        yield CheckResult(name, "failure", finding, "use a cluster with ipFamily ipv4", "kubernetes.cluster")
    if not cluster.get("resourcesVpcConfig", {}).get("endpointPrivateAccess"):
        finding = "the API has no private endpoint: proxies of http need a way through the internet to it"
        yield CheckResult(name, "warning", finding, "enable endpointPrivateAccess", "kubernetes.cluster")


def _node_role(kubernetes: Kubernetes, account: Account) -> CheckResult | None:
    role = kubernetes.node_role
    try:
        account.clients("iam").get_role(RoleName=role)
    except ClientError as error:
        if error.response["Error"]["Code"] != "NoSuchEntity":
            raise
        finding = "the role does not exist: no node could join"
        return CheckResult(str(role), "failure", finding, "name Karpenter's node role", "kubernetes.nodeRole")
    return None


def _access(name: str, account: Account) -> CheckResult | None:
    pages = account.clients("eks").get_paginator("list_access_entries").paginate(clusterName=name)
    entries = {entry for page in pages for entry in page["accessEntries"]}
    caller = principal(account.clients("iam"), account.caller)
    if caller in entries:
        return None
    finding = f"no access entry for {caller}; aws-auth may have one"
    return CheckResult(name, "warning", finding, "create an access entry for who runs `up`")


def _created(
    stack: Stack,
    kubernetes: Kubernetes,
    created: CreatedCluster,
    cluster: dict[str, Any] | None,
    account: Account,
) -> Iterator[CheckResult]:
    name = kubernetes.cluster
    if cluster is None:
        yield _quota(account)
    elif cluster.get("tags", {}).get(names.TAG_STACK) != stack.name:
        finding = "a cluster with this name exists without this stack's tag: `up` cannot create it"
        yield CheckResult(name, "failure", finding, "use another name", "kubernetes.cluster")
    yield _offered_version(kubernetes, account)
    yield from _zones(stack, account)
    yield from _system_nodes(stack, created, account)
    yield from _addons(kubernetes, created, account)
    if not created.public_cidrs:
        finding = "the API endpoint is private only: `up` must run in kubernetes.create.allowedSources"
        advice = "create the network and a way into it first, or set this key (docs/kubernetes.md)"
        yield CheckResult(name, "warning", finding, advice, "kubernetes.create.publicCidrs")


def _quota(account: Account) -> CheckResult:
    pages = account.clients("eks").get_paginator("list_clusters").paginate()
    existing = sum(len(page["clusters"]) for page in pages)
    clusters = quota(account, *_CLUSTERS_QUOTA)
    finding = f"{clusters.value:.0f}, {existing} in use; this stack adds 1"
    return replace(clusters.check(finding, existing + 1, existing + 1), key="kubernetes.create")


def _offered_version(kubernetes: Kubernetes, account: Account) -> CheckResult:
    version, key = kubernetes.version, "kubernetes.version"
    pages = account.clients("eks").get_paginator("describe_cluster_versions").paginate(includeAll=True)
    offered = {entry["clusterVersion"]: entry for page in pages for entry in page["clusterVersions"]}
    entry = offered.get(version)
    if entry is None or entry.get("versionStatus") != "STANDARD_SUPPORT":
        usable = sorted(v for v, e in offered.items() if e.get("versionStatus") == "STANDARD_SUPPORT")
        finding = f"EKS has it not in standard support; in standard support: {', '.join(usable) or 'none'}"
        return CheckResult(f"Kubernetes {version}", "failure", finding, "use another version", key)
    end = entry.get("endOfStandardSupportDate")
    if end is not None and end - datetime.now(UTC) < _SUPPORT_ENDS:
        finding = f"standard support ends {end:%Y-%m-%d}; EKS then upgrades the cluster"
        return CheckResult(f"Kubernetes {version}", "warning", finding, "use a newer version", key)
    return CheckResult(f"Kubernetes {version}", "ok", "offered, in standard support")


def _zones(stack: Stack, account: Account) -> Iterator[CheckResult]:
    described = account.clients("ec2").describe_availability_zones()["AvailabilityZones"]
    ids = {zone["ZoneName"]: zone.get("ZoneId", "") for zone in described}
    for zone in stack.zones:
        if ids.get(zone) in _ZONES_WITHOUT_CONTROL_PLANES:
            finding = f"is {ids[zone]}, in which EKS puts no control plane"
            yield CheckResult(zone, "failure", finding, "remove it", "network.zones")


def _system_nodes(stack: Stack, created: CreatedCluster, account: Account) -> Iterator[CheckResult]:
    kind = created.system_instance_type
    pages = (
        account.clients("ec2")
        .get_paginator("describe_instance_type_offerings")
        .paginate(LocationType="availability-zone", Filters=[{"Name": "instance-type", "Values": [kind]}])
    )
    offered = {offering["Location"] for page in pages for offering in page["InstanceTypeOfferings"]}
    missing = [zone for zone in stack.zones if zone not in offered]
    key = "kubernetes.create.systemInstanceType"
    if len(missing) == len(stack.zones):
        yield CheckResult(kind, "failure", "offered in no zone of the stack", "use another type", key)
    elif missing:
        yield CheckResult(kind, "warning", f"not offered in {', '.join(missing)}", "", key)


def _addons(kubernetes: Kubernetes, created: CreatedCluster, account: Account) -> Iterator[CheckResult]:
    if not created.addon_versions:
        return
    pages = (
        account.clients("eks")
        .get_paginator("describe_addon_versions")
        .paginate(kubernetesVersion=kubernetes.version)
    )
    offered = {
        addon["addonName"]: [version["addonVersion"] for version in addon.get("addonVersions", ())]
        for page in pages
        for addon in page["addons"]
    }
    for addon, version in created.addon_versions.items():
        if version not in offered.get(addon, ()):
            newest = ", ".join(offered.get(addon, ())[:3]) or "none"
            finding = f"{version} is not offered for Kubernetes {kubernetes.version}; offered: {newest}, …"
            yield CheckResult(
                addon, "failure", finding, "use another version", f"kubernetes.create.addonVersions.{addon}"
            )
