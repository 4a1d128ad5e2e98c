"""Storage that outlives instances."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import pulumi

from infra import schema
from infra.components.storage.bucket import MAX_NAME_LENGTH, Bucket, BucketArgs
from infra.components.storage.file_system import FileSystem, FileSystemArgs
from infra.components.storage.repository import Repository, RepositoryArgs
from infra.scope import Scope


@dataclass(frozen=True)
class StorageArgs:
    """``subnet_ids`` are by zone; ``clients`` is the security group that may mount the file system.

    ``mounted_by_pods`` are the names of its access points that pods mount.
    """

    scope: Scope
    settings: schema.Storage
    vpc_id: pulumi.Input[str]
    subnet_ids: Mapping[str, pulumi.Input[str]]
    clients: pulumi.Input[str]
    mounted_by_pods: Collection[str] = ()


class Storage(pulumi.ComponentResource):
    """The file system, buckets and repositories of the settings."""

    file_system: FileSystem | None
    buckets: dict[str, Bucket]
    repositories: dict[str, Repository]

    def __init__(self, name: str, args: StorageArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        """Declare the storage."""
        super().__init__("gpu-spot:infra:Storage", name, None, opts)
        scope, child = args.scope, pulumi.ResourceOptions(parent=self)
        self.file_system = None
        if args.settings.file_system is not None:
            self.file_system = FileSystem(
                scope.name("files"),
                FileSystemArgs(
                    scope,
                    args.settings.file_system,
                    args.vpc_id,
                    args.subnet_ids,
                    args.clients,
                    args.mounted_by_pods,
                ),
                child,
            )
        self.buckets = {
            settings.name: Bucket(
                scope.name("bucket", settings.name, limit=MAX_NAME_LENGTH), BucketArgs(scope, settings), child
            )
            for settings in args.settings.buckets
        }
        self.repositories = {
            settings.name: Repository(
                scope.name("images", settings.name), RepositoryArgs(scope, settings), child
            )
            for settings in args.settings.repositories
        }
        self.register_outputs({})
