"""The EKS cluster of entries on Kubernetes: one that exists, or one that the stack creates.

Source: EKS API reference, ``DescribeCluster``, ``DescribeAddonVersions`` and ``ListAccessEntries``. EKS
refuses a wrong name or zone of a new cluster at once; checked is what fails after the cluster's creation.
Controllers inside a cluster cannot be seen through AWS.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime
from typing import Any, Final

from botocore.exceptions import ClientError

from contracts.agent import names
from gpu_spot.preflight.account import Account
from gpu_spot.preflight.check_result import CheckResult, Status, error_code
from gpu_spot.preflight.checks.offerings import offered_pools
from gpu_spot.preflight.checks.permissions import has_role, principal
from gpu_spot.preflight.stack import Stack
from infra.catalogue import chart_versions
from infra.schema.cluster.created_cluster import CreatedCluster
from infra.schema.cluster.kubernetes import Kubernetes

_CLUSTER: Final = "kubernetes.cluster"
_OLD_DAYS: Final = 180
"""Age above which a pinned version is a warning."""


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
    if cluster.get("computeConfig", {}).get("enabled"):
        # It has no EC2NodeClass (containers-roadmap 2524), and its nodes have other defaults.
        finding = "the cluster is in EKS Auto Mode, which runs no Karpenter of its own with an EC2NodeClass"
        yield CheckResult(name, "failure", finding, "use a cluster without Auto Mode", _CLUSTER)
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


def snapshots(stack: Stack, account: Account) -> Iterator[CheckResult]:
    """Check that the EBS driver may create volumes from the snapshots of entries on Kubernetes."""
    entries, kubernetes = stack.kubernetes, stack.settings.kubernetes
    if entries is None or kubernetes is None:
        return
    for snapshot in sorted(
        {dataset.snapshot for entry in (*entries.services, *entries.training) for dataset in entry.datasets}
    ):
        try:
            [details] = account.clients("ec2").describe_snapshots(SnapshotIds=[snapshot])["Snapshots"]
        except ClientError as error:
            if not error_code(error).startswith("InvalidSnapshot"):
                raise
            yield CheckResult(snapshot, "failure", "the snapshot does not exist", "name one of this region")
            continue
        tags = {tag["Key"]: tag["Value"] for tag in details.get("Tags", ())}
        if tags.get(names.TAG_EBS_DRIVER) == "true":
            yield CheckResult(snapshot, "ok", "the EBS driver may create volumes from it")
            continue
        tag = f"Key={names.TAG_EBS_DRIVER},Value=true"
        finding = (
            f"without the tag {tag} AmazonEBSCSIDriverPolicyV2 denies its volumes: pods would stay Pending"
        )
        advice = f"aws ec2 create-tags --resources {snapshot} --tags {tag}"
        yield CheckResult(snapshot, "failure" if kubernetes.create else "warning", finding, advice)


def pins(stack: Stack, account: Account) -> Iterator[CheckResult]:
    """List the versions that are pinned for the cluster, with their ages."""
    kubernetes = stack.settings.kubernetes
    if kubernetes is None:
        return
    yield _support(kubernetes.version, account)
    image = kubernetes.node_image
    yield _aged(image, image.rpartition("@v")[2], "kubernetes.nodeImage")
    created = kubernetes.create
    if created is None:
        return
    if (image := created.system_image or "") != "":
        yield _aged(f"system nodes: {image}", image.rpartition("-")[2], "kubernetes.create.systemImage")
    for addon, version in created.addon_versions.items():
        yield _aged(f"{addon} {version}", "", "addonVersions")
    by_version = {version.version: version for version in chart_versions.ALL}
    for release in stack.of_type("kubernetes:helm.sh/v3:Release"):
        pinned, subject = by_version[release["version"]], f"{release['name']} {release['version']}"
        if not chart_versions.supports(pinned, kubernetes.version):
            finding = f"supports Kubernetes up to {pinned.kubernetes}, not {kubernetes.version}"
            yield CheckResult(subject, "warning", finding, "stay with that version", "kubernetes.version")
        yield _aged(subject, pinned.released, "")


def _support(version: str, account: Account) -> CheckResult:
    """Check that EKS offers a version, and until when at the usual price."""
    reply = account.clients("eks").describe_cluster_versions(clusterVersions=[version])
    subject, key = f"Kubernetes {version}", "kubernetes.version"
    details = next((item for item in reply["clusterVersions"] if item.get("clusterVersion") == version), None)
    if details is None:
        return CheckResult(subject, "failure", "EKS does not offer it", "use another version", key)
    if (end := details.get("endOfStandardSupportDate")) is None:
        return CheckResult(subject, "not known", "EKS names no end of its standard support", "", key)
    days = (end.date() - _today()).days
    finding = f"standard support ends on {end.date()}, in {days} days"
    return CheckResult(subject, "warning" if days < _OLD_DAYS / 3 else "ok", finding, "", key)


def _aged(subject: str, day: str, key: str) -> CheckResult:
    """Return a pinned version's age by its date: ``20261101``, ``2026-11-01``, or another text for none."""
    try:
        released = date.fromisoformat(day)
    except ValueError:
        return CheckResult(subject, "not known", "pinned; its age is not known", "", key)
    days = (_today() - released).days
    status: Status = "warning" if days > _OLD_DAYS else "ok"
    return CheckResult(subject, status, f"pinned, of {released}, {days} days old", "", key)


def _today() -> date:
    return datetime.now(UTC).date()
