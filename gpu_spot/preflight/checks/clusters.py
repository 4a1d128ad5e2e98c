"""The EKS cluster of entries on Kubernetes: one that exists, or one that the stack creates.

Source: EKS API reference, ``DescribeCluster``, ``DescribeAddonVersions`` and ``ListAccessEntries``. EKS
refuses a wrong name, version or zone of a new cluster at once; checked is what fails after the cluster's
creation. Controllers inside a cluster cannot be seen through AWS.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from botocore.exceptions import ClientError

from gpu_spot.preflight.account import Account
from gpu_spot.preflight.check_result import CheckResult, error_code
from gpu_spot.preflight.checks.offerings import offered_pools
from gpu_spot.preflight.checks.permissions import has_role, principal
from gpu_spot.preflight.stack import Stack
from infra.schema.cluster.created_cluster import CreatedCluster
from infra.schema.cluster.kubernetes import Kubernetes

_CLUSTER = "kubernetes.cluster"


def run(stack: Stack, account: Account) -> Iterator[CheckResult]:
    """Check the cluster of ``kubernetes``; without it no request is made."""
    kubernetes = stack.settings.kubernetes
    if kubernetes is None:
        return
    if kubernetes.create is not None:
        yield from _created(stack, kubernetes, kubernetes.create, account)
        return
    name = kubernetes.cluster
    try:
        cluster = account.clients("eks").describe_cluster(name=name)["cluster"]
    except ClientError as error:
        if error_code(error) != "ResourceNotFoundException":
            raise
        advice = "name a cluster of this account and region, or set kubernetes.create"
        yield CheckResult(name, "failure", "the cluster does not exist", advice, _CLUSTER)
        return
    problems = [*_problems(stack, kubernetes, cluster, account)]
    yield from problems or [CheckResult(name, "ok", f"active, Kubernetes {cluster['version']}")]
    finding = "controllers inside the cluster cannot be seen through AWS"
    yield CheckResult(name, "not known", finding, "compare it with docs/kubernetes.md", _CLUSTER)


def _problems(
    stack: Stack, kubernetes: Kubernetes, cluster: dict[str, Any], account: Account
) -> Iterator[CheckResult]:
    name, network = kubernetes.cluster, cluster.get("resourcesVpcConfig", {})
    status = cluster.get("status", "")
    if status not in ("ACTIVE", "UPDATING"):
        finding = f"the cluster is {status or 'without a status'}"
        yield CheckResult(name, "failure", finding, "wait", _CLUSTER)
    if cluster.get("version") != kubernetes.version:
        finding = f"the cluster has {cluster.get('version')}; objects are rendered for {kubernetes.version}"
        yield CheckResult(name, "failure", finding, "set the cluster's version", "kubernetes.version")
    declared, actual = stack.settings.network.vpc_id, network.get("vpcId")
    if declared is None or declared != actual:
        finding = f"the cluster is in {actual}, the stack in {declared or 'a network that it creates'}"
        yield CheckResult(name, "failure", finding, "use the cluster's network", "network.vpcId")
    mode = cluster.get("accessConfig", {}).get("authenticationMode", "CONFIG_MAP")
    if "API" not in mode:
        finding = f"authentication mode {mode} has no access entries"
        yield CheckResult(name, "failure", finding, "set API_AND_CONFIG_MAP", _CLUSTER)
    if not network.get("endpointPublicAccess"):
        finding = "the API endpoint is private only: `up` must run inside the VPC"
        yield CheckResult(name, "warning", finding, "use a runner or VPN there", _CLUSTER)
    role = str(kubernetes.node_role)
    if not has_role(account, role):
        finding = "the role does not exist: no node could join"
        yield CheckResult(role, "failure", finding, "name Karpenter's node role", "kubernetes.nodeRole")
    pages = account.clients("eks").get_paginator("list_access_entries").paginate(clusterName=name)
    entries = {entry for page in pages for entry in page["accessEntries"]}
    caller = principal(account.clients("iam"), account.caller)
    if caller not in entries:
        finding = f"no access entry for {caller}; aws-auth may have one"
        yield CheckResult(name, "warning", finding, "create an access entry for who runs `up`")


def _created(
    stack: Stack, kubernetes: Kubernetes, created: CreatedCluster, account: Account
) -> Iterator[CheckResult]:
    kind, key = created.system_instance_type, "kubernetes.create.systemInstanceType"
    offered = offered_pools(account, [kind])
    missing = [zone for zone in stack.zones if (kind, zone) not in offered]
    if len(missing) == len(stack.zones):
        yield CheckResult(kind, "failure", "offered in no zone of the stack", "use another type", key)
    elif missing:
        yield CheckResult(kind, "warning", f"not offered in {', '.join(missing)}", "", key)
    if created.addon_versions:
        yield from _addons(kubernetes.version, created.addon_versions, account)
    if not created.public_cidrs:
        finding = "the API endpoint is private only: `up` must run in kubernetes.create.allowedSources"
        advice = "create the network and a way into it first, or set this key (docs/kubernetes.md)"
        yield CheckResult(kubernetes.cluster, "warning", finding, advice, "kubernetes.create.publicCidrs")


def _addons(version: str, chosen_versions: Mapping[Any, str], account: Account) -> Iterator[CheckResult]:
    client = account.clients("eks")
    pages = client.get_paginator("describe_addon_versions").paginate(kubernetesVersion=version)
    offered = {
        addon["addonName"]: [entry["addonVersion"] for entry in addon.get("addonVersions", ())]
        for page in pages
        for addon in page["addons"]
    }
    for addon, chosen in chosen_versions.items():
        if chosen not in offered.get(addon, ()):
            newest = ", ".join(offered.get(addon, ())[:3]) or "none"
            finding = f"{chosen} is not offered for Kubernetes {version}; offered: {newest}, …"
            key = f"kubernetes.create.addonVersions.{addon}"
            yield CheckResult(addon, "failure", finding, "use another version", key)
