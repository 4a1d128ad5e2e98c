"""Settings of ``kubernetes.create``: an EKS cluster that the stack creates."""

from __future__ import annotations

import ipaddress
from typing import Annotated, Literal, TypeAlias

from pydantic import Field, field_validator, model_validator

from infra.schema.base import CpuType, Model, check_private_networks, is_private

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
    "eks-node-monitoring-agent",
]
"""EKS add-ons that a created cluster has."""


class ClusterAccess(Model):
    """An EKS access entry. The principal that creates the cluster has no access without one."""

    role: RoleArn
    """ARN of an IAM role."""
    access_policy: AccessPolicy = "view"
    """EKS access policy of the role, in the whole cluster: ``admin`` is AmazonEKSClusterAdminPolicy, ``edit``
    AmazonEKSEditPolicy, ``view`` AmazonEKSViewPolicy."""


class CreatedCluster(Model):
    """An EKS cluster with a managed node group for system pods, and the controllers that the entries need."""

    access: Annotated[tuple[ClusterAccess, ...], Field(min_length=1, max_length=50, strict=False)]
    """Access entries. At least one must be ``admin``: the role that runs ``pulumi up`` and installs the
    charts."""
    public_cidrs: Annotated[tuple[str, ...], Field(max_length=40, strict=False)] = ()
    """IPv4 CIDR blocks that may connect to the public API endpoint. Default: the endpoint is private only."""
    allowed_sources: Annotated[tuple[str, ...], Field(max_length=20, strict=False)] = ()
    """IPv4 CIDR blocks of private networks that may connect to the private API endpoint: those that are
    connected to the VPC, or its own. With neither these nor ``publicCidrs`` nothing could install the
    charts."""
    system_instance_type: CpuType = "m7g.large"
    """Instance type of the nodes for system pods, such as controllers and DNS."""
    system_image: Annotated[str, Field(pattern=r"^1\.[0-9]+\.[0-9]+-[0-9]{8}$")] | None = None
    """AMI release of the nodes for system pods, such as ``1.36.2-20261110``; another one replaces them one by
    one. Default: EKS's newest when it creates them or moves them to another ``version``."""
    system_nodes: Annotated[int, Field(ge=2, le=20)] = 2
    """Number of nodes for system pods."""
    job_start_minutes: Annotated[int, Field(ge=5, le=1440)] = 30
    """Minutes that Kueue waits for all pods of an admitted job, before it takes the job's turn."""
    job_pause_seconds: Annotated[int, Field(ge=1, le=3600)] = 60
    """Seconds until such a job may ask for capacity again."""
    job_starts: Annotated[int, Field(ge=1, le=100_000)] = 336
    """How often such a job may ask, in all, before it stays suspended; with the defaults for a week."""
    logs: Annotated[tuple[LogType, ...], Field(max_length=5, strict=False)] = (
        "api",
        "audit",
        "authenticator",
    )
    """Control plane logs that are sent to CloudWatch Logs."""
    addon_versions: dict[Addon, AddonVersion] = Field(default_factory=dict)
    """Versions of EKS add-ons, by name. Default: EKS's default for the cluster's version, looked
    up in each preview."""

    @field_validator("access")
    @classmethod
    def _has_an_administrator(cls, access: tuple[ClusterAccess, ...]) -> tuple[ClusterAccess, ...]:
        roles = [entry.role for entry in access]
        if duplicates := [role for role in roles if roles.count(role) > 1]:
            raise ValueError(f"{duplicates[0]!r} is listed twice; list each role once")
        if not any(entry.access_policy == "admin" for entry in access):
            raise ValueError("no role has accessPolicy 'admin'; give it to the role that runs 'pulumi up'")
        return access

    @field_validator("public_cidrs")
    @classmethod
    def _blocks(cls, cidrs: tuple[str, ...]) -> tuple[str, ...]:
        for cidr in cidrs:
            try:
                block = ipaddress.IPv4Network(cidr)
            except ValueError as error:
                raise ValueError(f"has no CIDR block ({error}); write one such as 192.0.2.0/24") from None
            if block.prefixlen == 0:
                raise ValueError(f"{cidr!r} is the whole internet; list smaller blocks")
            # EKS guide, "Configure network access to cluster API server endpoint": no reserved addresses.
            if is_private(block):
                raise ValueError(f"{cidr!r} is private, which EKS refuses here; list it in allowedSources")
        return cidrs

    _private_networks = field_validator("allowed_sources")(check_private_networks)

    @model_validator(mode="after")
    def _can_be_reached(self) -> CreatedCluster:
        if not (self.public_cidrs or self.allowed_sources):
            raise ValueError(
                "publicCidrs and allowedSources are both empty; list the network that runs 'pulumi "
                "up' in one of them"
            )
        return self
