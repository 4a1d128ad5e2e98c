"""An EFS file system."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

import pulumi
import pulumi_aws as aws

from infra.components import fixed
from infra.iam import resource_policies
from infra.iam.statement import document
from infra.schema.operations import AccessPoint
from infra.schema.operations import FileSystem as Settings
from infra.scope import Scope

_NFS: Final = 2049
_OF_A_VOLUME: Final = ["posixUser", "rootDirectory"]
"""Another value replaces an access point, and the PersistentVolume with it: Kubernetes removes no volume that
is bound, so the update would wait, and the running job's claim would be lost (Kubernetes, "Storage Object in
Use Protection")."""
_ADD: Final = "add an access point, and set the jobs' checkpoints to it"


@dataclass(frozen=True)
class FileSystemArgs:
    """``subnet_ids`` by zone each get a mount target; ``clients`` is the security group that may mount.

    ``mounted_by_pods`` are the names of access points with a Kubernetes volume, which is bound to their ids.
    """

    scope: Scope
    settings: Settings
    vpc_id: pulumi.Input[str]
    subnet_ids: Mapping[str, pulumi.Input[str]]
    clients: pulumi.Input[str]
    mounted_by_pods: Collection[str] = ()


class FileSystem(pulumi.ComponentResource):
    """An encrypted file system with its policy, security group, mount targets and access points."""

    id: pulumi.Output[str]
    arn: pulumi.Output[str]
    access_point_ids: dict[str, pulumi.Output[str]]
    access_point_arns: dict[str, pulumi.Output[str]]
    paths: dict[str, str]

    def __init__(self, name: str, args: FileSystemArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        """Declare the file system."""
        super().__init__("gpu-spot:infra:FileSystem", name, None, opts)
        self._args, self._child = args, pulumi.ResourceOptions(parent=self)
        scope = args.scope
        system = aws.efs.FileSystem(
            name,
            encrypted=True,
            kms_key_id=scope.kms_key_arn,
            # Not bursting: without credits it writes 50 KiB/s per GiB stored, slower than jobs save.
            throughput_mode="elastic" if args.settings.throughput_mib is None else "provisioned",
            provisioned_throughput_in_mibps=args.settings.throughput_mib,
            performance_mode="generalPurpose",
            lifecycle_policies=[
                aws.efs.FileSystemLifecyclePolicyArgs(
                    transition_to_ia=_after_days(args.settings.infrequent_after_days)
                ),
                aws.efs.FileSystemLifecyclePolicyArgs(transition_to_primary_storage_class="AFTER_1_ACCESS"),
            ],
            tags=scope.tags(name),
            opts=pulumi.ResourceOptions.merge(
                scope.stateful_options(self),
                pulumi.ResourceOptions(ignore_changes=["kmsKeyId"] if args.mounted_by_pods else None),
            ),
        )
        self.id, self.arn = self._checked_id(system), system.arn
        aws.efs.FileSystemPolicy(
            name,
            file_system_id=system.id,
            policy=document(resource_policies.file_system(scope, system.arn)),
            opts=self._child,
        )
        group = self._security_group()
        for zone, subnet in args.subnet_ids.items():
            aws.efs.MountTarget(
                scope.name("files", zone),
                file_system_id=system.id,
                subnet_id=subnet,
                security_groups=[group.id],
                opts=self._child,
            )
        self.paths = {point.name: point.path for point in args.settings.access_points}
        points = {point.name: self._access_point(point) for point in args.settings.access_points}
        self.access_point_ids = {
            point.name: self._checked_point_id(point, points[point.name])
            for point in args.settings.access_points
        }
        self.access_point_arns = {name: point.arn for name, point in points.items()}
        self.register_outputs({"id": self.id})

    def _security_group(self) -> aws.ec2.SecurityGroup:
        args, name = self._args, self._args.scope.name("files")
        group = aws.ec2.SecurityGroup(
            name,
            vpc_id=args.vpc_id,
            description="File system: NFS from workers, nothing out",
            tags=args.scope.tags(name),
            opts=self._child,
        )
        aws.vpc.SecurityGroupIngressRule(
            args.scope.name("files-in"),
            security_group_id=group.id,
            ip_protocol="tcp",
            from_port=_NFS,
            to_port=_NFS,
            referenced_security_group_id=args.clients,
            description="NFS from workers",
            tags=args.scope.tags(name),
            opts=self._child,
        )
        return group

    def _access_point(self, point: AccessPoint) -> aws.efs.AccessPoint:
        scope = self._args.scope
        name = scope.name("files", point.name)
        return aws.efs.AccessPoint(
            name,
            file_system_id=self.id,
            posix_user=aws.efs.AccessPointPosixUserArgs(uid=point.user_id, gid=point.group_id),
            root_directory=aws.efs.AccessPointRootDirectoryArgs(
                path=point.path,
                # Created on first use; mounting a missing path would fail.
                creation_info=aws.efs.AccessPointRootDirectoryCreationInfoArgs(
                    owner_uid=point.user_id, owner_gid=point.group_id, permissions="0750"
                ),
            ),
            tags=scope.tags(name),
            opts=pulumi.ResourceOptions.merge(
                self._child,
                pulumi.ResourceOptions(ignore_changes=_OF_A_VOLUME if self._has_volume(point) else None),
            ),
        )

    def _has_volume(self, point: AccessPoint) -> bool:
        return point.name in self._args.mounted_by_pods

    def _checked_id(self, system: aws.efs.FileSystem) -> pulumi.Output[str]:
        """Return the id; the output raises ``pulumi.RunError`` for another key while pods mount the files."""
        key = self._args.scope.kms_key_arn
        system_id: pulumi.Output[str] = system.id
        if key is None or not self._args.mounted_by_pods:
            return system_id
        same = fixed.unchanged("kmsKeyArn", key, system.kms_key_id, "the file system that pods mount", _ADD)
        return pulumi.Output.all(system.id, same).apply(lambda values: str(values[0]))

    def _checked_point_id(self, point: AccessPoint, resource: aws.efs.AccessPoint) -> pulumi.Output[str]:
        """Return the id; the output raises ``pulumi.RunError`` for a change below a Kubernetes volume."""
        point_id: pulumi.Output[str] = resource.id
        if not self._has_volume(point):
            return point_id
        key, owner = "storage.fileSystem.accessPoints", f"access point {point.name!r}, which pods mount,"
        current = pulumi.Output.all(
            resource.root_directory.apply(lambda directory: directory.path),
            resource.posix_user.apply(lambda user: user.uid if user else None),
            resource.posix_user.apply(lambda user: user.gid if user else None),
        ).apply(lambda values: _described(*values))
        desired = _described(point.path, point.user_id, point.group_id)
        same = fixed.unchanged(key, desired, current, owner, _ADD)
        return pulumi.Output.all(resource.id, same).apply(lambda values: str(values[0]))


def _described(path: str, user: float | None, group: float | None) -> str:
    return f"path {path}, userId {user:.0f}, groupId {group:.0f}"


def _after_days(days: int) -> str:
    return "AFTER_1_DAY" if days == 1 else f"AFTER_{days}_DAYS"
