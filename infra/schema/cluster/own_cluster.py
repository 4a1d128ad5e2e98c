"""The shape of ``kubernetes.own``: an EKS cluster that the stack declares."""

from __future__ import annotations

import ipaddress
from typing import Annotated, Literal, TypeAlias

from pydantic import Field, field_validator

from infra.catalogue.cpu_types import architecture
from infra.schema.base import Model

LogType: TypeAlias = Literal["api", "audit", "authenticator", "controllerManager", "scheduler"]
AccessPolicy: TypeAlias = Literal["admin", "edit", "view"]
RoleArn: TypeAlias = Annotated[
    str, Field(pattern=r"^arn:aws[a-z-]*:iam::[0-9]{12}:role/[A-Za-z0-9+=,.@_/-]{1,128}$")
]
AddonVersion: TypeAlias = Annotated[str, Field(pattern=r"^v[0-9]+(\.[0-9]+){2}-eksbuild\.[0-9]+$")]
Addon: TypeAlias = Literal[
    "vpc-cni",
    "kube-proxy",
    "coredns",
    "eks-pod-identity-agent",
    "aws-ebs-csi-driver",
    "aws-efs-csi-driver",
    "snapshot-controller",
    "aws-secrets-store-csi-driver-provider",
]
"""EKS's names of the add-ons that a cluster is given."""


class ClusterAccess(Model):
    """Who may use the cluster's API, by an access entry; nobody may by having made it."""

    role: RoleArn
    """The ARN of an IAM role."""
    may: AccessPolicy = "view"
    """What EKS's access policy of that name allows in the whole cluster."""


class OwnCluster(Model):
    """An EKS cluster with a node group for its own pods, and the engines that the entries need."""

    access: Annotated[tuple[ClusterAccess, ...], Field(min_length=1, max_length=50, strict=False)]
    """Roles that may use its API; one administrator is needed, which runs ``up`` and installs the charts."""
    public_cidrs: Annotated[tuple[str, ...], Field(max_length=40, strict=False)] = ()
    """IPv4 blocks that reach its API from the internet; without any it has a private endpoint alone."""
    system_type: Annotated[str, Field(max_length=30)] = "m7g.large"
    """Of the nodes of its own pods, such as controllers and DNS."""
    system_nodes: Annotated[int, Field(ge=2, le=20)] = 2
    """How many of them."""
    logs: Annotated[tuple[LogType, ...], Field(max_length=5, strict=False)] = (
        "api",
        "audit",
        "authenticator",
    )
    """Of the control plane, in CloudWatch; its scheduler and controller manager tell much and little."""
    addon_versions: dict[Addon, AddonVersion] = Field(default_factory=dict)
    """Versions of EKS's add-ons by their names; the others have EKS's default for the cluster's version."""

    @field_validator("access")
    @classmethod
    def _has_an_administrator(cls, access: tuple[ClusterAccess, ...]) -> tuple[ClusterAccess, ...]:
        roles = [one.role for one in access]
        if twice := [role for role in roles if roles.count(role) > 1]:
            raise ValueError(f"{twice[0]!r} is there twice, allowed: once")
        if not any(one.may == "admin" for one in access):
            raise ValueError("no role may 'admin', allowed: at least one, which runs 'up'")
        return access

    @field_validator("public_cidrs")
    @classmethod
    def _blocks(cls, cidrs: tuple[str, ...]) -> tuple[str, ...]:
        for cidr in cidrs:
            try:
                block = ipaddress.IPv4Network(cidr)
            except ValueError as error:
                raise ValueError(f"{error}, allowed: blocks such as 192.0.2.0/24") from None
            if block.prefixlen == 0:
                raise ValueError(f"{cidr!r} is everybody, allowed: blocks of your own")
        return cidrs

    @field_validator("system_type")
    @classmethod
    def _is_a_cpu_type(cls, name: str) -> str:
        architecture(name)
        return name
