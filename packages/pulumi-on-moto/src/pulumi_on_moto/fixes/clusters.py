"""Add-ons, access entries, access policies and pod identity of EKS clusters, which moto lacks.

Sources: the operations in botocore's model; the EKS guide, "Grant IAM users access to Kubernetes with EKS
access entries": entries need an authentication mode with API, nodes' entries accept no policy, and the
creator of a cluster is its administrator only if requested; "Learn how EKS Pod Identity grants pods access to
AWS services": one role for a service account, which trusts pods.eks.amazonaws.com.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.core.responses import ActionResult
from moto.ec2.models import ec2_backends
from moto.eks import urls
from moto.eks.models import EKSBackend, eks_backends
from moto.eks.responses import EKSResponse

from pulumi_on_moto.fixes import Patches, RefusedError, around, local
from pulumi_on_moto.fixes.simulation import trusted_actions

ADDONS: Final = "addons"
_PODS: Final = "pod_identity_associations"
_POD_SERVICE: Final = "pods.eks.amazonaws.com"
_POD_ACTIONS: Final = {"sts:AssumeRole", "sts:TagSession"}
ACCESS: Final = "access_entries"
MODES: Final = "access_configs"
EXISTING: Final = "given_clusters"
"""Existing clusters, not declared by a program."""
_VERSION: Final = "1.36"
_ADMIN: Final = ":cluster-access-policy/AmazonEKSClusterAdminPolicy"
_IN_USE: Final = "ResourceInUseException"
_REFUSED: Final = "InvalidRequestException"
_INVALID: Final = "InvalidParameterException"


def stored_on(backend: EKSBackend, attribute: str) -> dict[str, Any]:
    """Return the state that moto lacks, by cluster."""
    stored: dict[str, Any] = local(backend, attribute, {})
    return stored


def existing_cluster(region: str, name: str) -> dict[str, Any]:
    """Return the description of a cluster; a missing one is created, and serves every API group."""
    backend = eks_backends[DEFAULT_ACCOUNT_ID][region]
    if name not in backend.clusters:
        role = f"arn:aws:iam::{DEFAULT_ACCOUNT_ID}:role/{name}"
        backend.create_cluster(name, role, {}, version=_VERSION)
        stored_on(backend, EXISTING)[name] = True
        stored_on(backend, MODES)[name] = {"authenticationMode": "API_AND_CONFIG_MAP"}
        _add_security_group(backend, name)
    cluster = backend.clusters[name]
    return {
        "arn": cluster.arn,
        "endpoint": cluster.endpoint,
        "version": cluster.version,
        "status": cluster.status,
        "certificateAuthorities": [{"data": cluster.certificate_authority["data"]}],
        "vpcConfig": {"clusterSecurityGroupId": cluster.resources_vpc_config["clusterSecurityGroupId"]},
    }


def is_administered(backend: EKSBackend, cluster: str) -> bool:
    """Return whether the deploying principal can administer a cluster's API."""
    config = stored_on(backend, MODES).get(cluster, {})
    entries = stored_on(backend, ACCESS).get(cluster, {})
    by_entry = any(policy.endswith(_ADMIN) for entry in entries.values() for policy in entry["policies"])
    return by_entry or config.get("bootstrapClusterCreatorAdminPermissions", True)


def _create(create: Callable[..., ActionResult], response: EKSResponse) -> ActionResult:
    result = create(response)
    name, access_config = str(response._get_param("name")), response._get_param("accessConfig")
    stored_on(response.eks_backend, MODES)[name] = access_config or {}
    _add_security_group(response.eks_backend, name)
    return result


def _add_security_group(backend: EKSBackend, name: str) -> None:
    """Create a cluster's security group (EKS guide, "security group requirements for clusters")."""
    ec2 = ec2_backends[backend.account_id][backend.region_name]
    config = backend.clusters[name].resources_vpc_config
    subnets = config.get("subnetIds") or []
    default = ec2.get_default_vpc()
    vpc = ec2.get_subnet(subnets[0]).vpc_id if subnets else default.id if default else ""
    group = ec2.create_security_group(
        f"eks-cluster-sg-{name}-1", "EKS created security group", vpc, {"aws:eks:cluster-name": name}
    )
    config["clusterSecurityGroupId"] = group.id


def _addon(response: EKSResponse) -> ActionResult:
    cluster, body = _cluster(response), json.loads(response.body)
    addons = stored_on(response.eks_backend, ADDONS).setdefault(cluster, {})
    name = body["addonName"]
    if name in addons:
        raise RefusedError(_IN_USE, f"Addon already exists: {name}")
    if text := body.get("configurationValues"):
        json.loads(text)
    addons[name] = body
    arn = f"arn:aws:eks:{response.region}:{response.current_account}:addon/{cluster}/{name}"
    addon = {"addonName": name, "clusterName": cluster, "status": "ACTIVE", "addonArn": arn}
    return ActionResult({"addon": {**addon, "addonVersion": body.get("addonVersion") or "v1.0.0-eksbuild.1"}})


def _entry(response: EKSResponse) -> ActionResult:
    cluster, body = _cluster(response), json.loads(response.body)
    mode = stored_on(response.eks_backend, MODES).get(cluster, {}).get("authenticationMode", "CONFIG_MAP")
    if "API" not in mode.split("_AND_"):
        raise RefusedError(_REFUSED, f"The cluster's authentication mode {mode} must include API")
    entries = stored_on(response.eks_backend, ACCESS).setdefault(cluster, {})
    principal = body["principalArn"]
    if principal in entries:
        message = f"The specified access entry resource is already in use: {principal}"
        raise RefusedError(_IN_USE, message)
    entries[principal] = {"type": body.get("type") or "STANDARD", "policies": []}
    arn = f"arn:aws:eks:{response.region}:{response.current_account}:access-entry/{cluster}/{len(entries)}"
    entry = {"clusterName": cluster, "principalArn": principal, "accessEntryArn": arn}
    return ActionResult({"accessEntry": {**entry, "type": entries[principal]["type"]}})


def _policy(response: EKSResponse) -> ActionResult:
    cluster, body = _cluster(response), json.loads(response.body)
    principal = response._get_param("principalArn")
    entry = stored_on(response.eks_backend, ACCESS).get(cluster, {}).get(principal)
    if entry is None:
        missing = f"The specified principalArn could not be found: {principal}"
        raise RefusedError("ResourceNotFoundException", missing)
    if entry["type"] != "STANDARD":
        raise RefusedError(_REFUSED, f"Access entries of type {entry['type']} take no access policy")
    entry["policies"].append(body["policyArn"])
    scope = {"policyArn": body["policyArn"], "accessScope": body["accessScope"]}
    return ActionResult({"clusterName": cluster, "principalArn": principal, "associatedAccessPolicy": scope})


def _cluster(response: EKSResponse) -> str:
    name = str(response._get_param("name"))
    response.eks_backend.describe_cluster(name=name)
    return name


def _pod_identity(response: EKSResponse) -> ActionResult:
    body: dict[str, Any] = json.loads(response.body)
    cluster = str(response._get_param("name"))
    backend: EKSBackend = response.eks_backend
    associations = stored_on(backend, _PODS)
    key = f"{cluster}/{body['namespace']}/{body['serviceAccount']}"
    if key in associations:
        raise RefusedError(_IN_USE, f"Association already exists: {associations[key]['associationId']}")
    _check_trust(backend.account_id, body["roleArn"])
    identity = f"a-{len(associations):017d}"
    scope = f"{backend.region_name}:{backend.account_id}"
    associations[key] = {
        "clusterName": cluster,
        **{name: body[name] for name in ("namespace", "serviceAccount", "roleArn")},
        "tags": body.get("tags") or {},
        "associationId": identity,
        "associationArn": f"arn:aws:eks:{scope}:podidentityassociation/{cluster}/{identity}",
    }
    return ActionResult({"association": associations[key]})


def _check_trust(account: str, arn: str) -> None:
    trusted = trusted_actions(account, arn, _POD_SERVICE)
    if trusted is None:
        raise RefusedError(_INVALID, f"Role provided in the request does not exist: {arn}")
    if not trusted >= _POD_ACTIONS:
        refused = f"Trust policy of role {arn} does not let {_POD_SERVICE} assume it and tag its session"
        raise RefusedError(_INVALID, refused)


_ENTRIES: Final = "access-entries"
_PATHS: Final = {
    f"{{0}}/clusters/(?P<name>[^/]+)/{path}$": EKSResponse.dispatch
    for path in (
        *("addons", _ENTRIES, "pod-identity-associations"),
        f"{_ENTRIES}/(?P<principalArn>.+)/access-policies",
    )
}

PATCHES: Final[Patches] = (
    around(EKSResponse, "create_cluster", _create),
    (EKSResponse, "create_addon", _addon),
    (EKSResponse, "create_access_entry", _entry),
    (EKSResponse, "associate_access_policy", _policy),
    (EKSResponse, "create_pod_identity_association", _pod_identity),
    (urls, "url_paths", {**urls.url_paths, **_PATHS}),
)
