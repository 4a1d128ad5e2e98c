"""Storage: EFS file systems, S3 buckets, ECR repositories."""

from __future__ import annotations

from typing import Any, Final

from pulumi_on_moto.mapping.archives import asset_bytes
from pulumi_on_moto.mapping.base import CreatedResource, ResourceRequest, Spec, output_paths
from pulumi_on_moto.mapping.shapes import key_values, member

_NEVER_DELETED: Final = "nothing is ever deleted here"


def _file_system_extras(resource: CreatedResource) -> None:
    if policies := resource.inputs.get("lifecyclePolicies"):
        name = "lifecyclePolicies"
        shaped = resource.matched("efs", "PutLifecycleConfiguration", {name: policies}, name)
        resource.clients("efs").put_lifecycle_configuration(FileSystemId=resource.id, **shaped)


def _file_system_outputs(resource: CreatedResource) -> dict[str, Any]:
    return {
        "arn": resource.find("FileSystemArn"),
        "dnsName": f"{resource.id}.efs.{resource.clients.region}.amazonaws.com",
    }


def _bucket(draft: ResourceRequest) -> None:
    if draft.clients.region != "us-east-1":
        draft.put(CreateBucketConfiguration={"LocationConstraint": draft.clients.region})


def _bucket_tags(resource: CreatedResource) -> None:
    if resource.tags:
        tagging = {"TagSet": key_values(resource.tags)}
        resource.clients("s3").put_bucket_tagging(Bucket=resource.id, Tagging=tagging)


def _bucket_outputs(resource: CreatedResource) -> dict[str, Any]:
    return {
        "arn": f"arn:aws:s3:::{resource.id}",
        "bucketDomainName": f"{resource.id}.s3.amazonaws.com",
        "bucketRegionalDomainName": f"{resource.id}.s3.{resource.clients.region}.amazonaws.com",
    }


def _object(draft: ResourceRequest) -> None:
    if "content" in draft.inputs:
        draft.put(Body=draft.need("content").encode())
    else:
        draft.put(Body=asset_bytes(draft.need("source")))


def _object_tags(resource: CreatedResource) -> None:
    if resource.tags:
        bucket, tagging = resource.params["Bucket"], {"TagSet": key_values(resource.tags)}
        resource.clients("s3").put_object_tagging(Bucket=bucket, Key=resource.id, Tagging=tagging)


def _object_outputs(resource: CreatedResource) -> dict[str, Any]:
    return {
        "arn": f"arn:aws:s3:::{resource.params['Bucket']}/{resource.id}",
        "etag": resource.find("ETag"),
        "versionId": resource.find("VersionId"),
    }


def _nested(operation: str, parameter: str) -> Any:
    """Return a shaper that nests the inputs which are no parameters of an S3 operation below one that is."""

    def shape(draft: ResourceRequest) -> None:
        parameters = draft.clients("s3").meta.service_model.operation_model(operation).input_shape
        inner = {key: draft.take(key) for key in list(draft.inputs) if member(parameters, key) is None}
        draft.put(**{parameter: draft.matched("s3", operation, inner, parameter, parameter)})

    return shape


SPECS: dict[str, Spec] = {
    "aws:efs/fileSystem:FileSystem": Spec(
        "efs.create_file_system",
        "FileSystemId",
        after=_file_system_extras,
        takes={"lifecyclePolicies"},
        outputs=_file_system_outputs,
    ),
    "aws:efs/fileSystemPolicy:FileSystemPolicy": Spec("efs.put_file_system_policy", "=FileSystemId"),
    "aws:efs/mountTarget:MountTarget": Spec(
        "efs.create_mount_target", "MountTargetId", outputs=output_paths(ipAddress="IpAddress")
    ),
    "aws:efs/accessPoint:AccessPoint": Spec(
        "efs.create_access_point", "AccessPointId", outputs=output_paths(arn="AccessPointArn")
    ),
    "aws:s3/bucket:Bucket": Spec(
        "s3.create_bucket",
        "=Bucket",
        autoname="bucket",
        tags="after",
        shape=_bucket,
        after=_bucket_tags,
        outputs=_bucket_outputs,
        no_effect={"forceDestroy": _NEVER_DELETED},
    ),
    "aws:s3/bucketObjectv2:BucketObjectv2": Spec(
        "s3.put_object",
        "=Key",
        tags="after",
        shape=_object,
        after=_object_tags,
        outputs=_object_outputs,
        no_effect={"forceDestroy": _NEVER_DELETED},
    ),
    "aws:s3/bucketPolicy:BucketPolicy": Spec("s3.put_bucket_policy", "=Bucket"),
    "aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock": Spec(
        "s3.put_public_access_block",
        "=Bucket",
        shape=_nested("PutPublicAccessBlock", "PublicAccessBlockConfiguration"),
    ),
    "aws:s3/bucketVersioning:BucketVersioning": Spec("s3.put_bucket_versioning", "=Bucket"),
    "aws:s3/bucketOwnershipControls:BucketOwnershipControls": Spec(
        "s3.put_bucket_ownership_controls",
        "=Bucket",
        shape=_nested("PutBucketOwnershipControls", "OwnershipControls"),
    ),
    "aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration": Spec(
        "s3.put_bucket_encryption",
        "=Bucket",
        shape=_nested("PutBucketEncryption", "ServerSideEncryptionConfiguration"),
    ),
    "aws:s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration": Spec(
        "s3.put_bucket_lifecycle_configuration",
        "=Bucket",
        shape=_nested("PutBucketLifecycleConfiguration", "LifecycleConfiguration"),
    ),
    "aws:ecr/repository:Repository": Spec(
        "ecr.create_repository",
        "=repositoryName",
        rename={"name": "repositoryName"},
        autoname="name",
        outputs=output_paths(
            arn="repository.repositoryArn",
            repositoryUrl="repository.repositoryUri",
            registryId="repository.registryId",
        ),
        no_effect={"forceDelete": _NEVER_DELETED},
    ),
    "aws:ecr/lifecyclePolicy:LifecyclePolicy": Spec(
        "ecr.put_lifecycle_policy",
        "=repositoryName",
        rename={"repository": "repositoryName", "policy": "lifecyclePolicyText"},
    ),
}
