"""Storage: EFS file systems, S3 buckets, ECR repositories."""

from __future__ import annotations

from typing import Any, Final

from pulumi_on_moto.mapping.archives import asset_bytes
from pulumi_on_moto.mapping.base import CreatedResource, ResourceRequest, Spec, output_paths
from pulumi_on_moto.mapping.shapes import key_values

_NEVER_DELETED: Final = "nothing is ever deleted here"


def _file_system_extras(resource: CreatedResource) -> None:
    policies = resource.inputs.get("lifecyclePolicies") or []
    if policies:
        draft = ResourceRequest(resource.type, resource.name, "", resource.clients, {})
        shaped = draft.matched(
            "efs", "PutLifecycleConfiguration", policies, "lifecyclePolicies", "LifecyclePolicies"
        )
        resource.clients("efs").put_lifecycle_configuration(
            FileSystemId=resource.id, LifecyclePolicies=shaped
        )


def _file_system_outputs(resource: CreatedResource) -> dict[str, Any]:
    return {
        "arn": resource.find("FileSystemArn"),
        "dnsName": f"{resource.id}.efs.{resource.clients.region}.amazonaws.com",
    }


def _bucket(draft: ResourceRequest) -> None:
    name = draft.need("bucket")
    draft.put(Bucket=name)
    if draft.clients.region != "us-east-1":
        draft.put(CreateBucketConfiguration={"LocationConstraint": draft.clients.region})


def _bucket_tags(resource: CreatedResource) -> None:
    tags = {**(resource.inputs.get("tagsAll") or {}), **(resource.inputs.get("tags") or {})}
    if tags:
        resource.clients("s3").put_bucket_tagging(
            Bucket=resource.id,
            Tagging={"TagSet": [{"Key": key, "Value": value} for key, value in tags.items()]},
        )


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
    tags = {**(resource.inputs.get("tagsAll") or {}), **(resource.inputs.get("tags") or {})}
    if tags:
        resource.clients("s3").put_object_tagging(
            Bucket=resource.params["Bucket"], Key=resource.id, Tagging={"TagSet": key_values(tags)}
        )


def _object_outputs(resource: CreatedResource) -> dict[str, Any]:
    return {
        "arn": f"arn:aws:s3:::{resource.params['Bucket']}/{resource.id}",
        "etag": resource.find("ETag"),
        "versionId": resource.find("VersionId"),
    }


def _nested(operation: str, parameter: str) -> Any:
    """Return a shaper that nests all inputs except the bucket below one parameter of an S3 operation."""

    def shape(draft: ResourceRequest) -> None:
        bucket = draft.need("bucket")
        shaped = draft.matched("s3", operation, dict(draft.inputs), parameter, parameter)
        draft.inputs.clear()
        draft.put(Bucket=bucket, **{parameter: shaped})

    return shape


def _versioning(draft: ResourceRequest) -> None:
    draft.put(
        Bucket=draft.need("bucket"),
        VersioningConfiguration={"Status": draft.need("versioningConfiguration")["status"]},
    )


def _ownership(draft: ResourceRequest) -> None:
    rule = draft.need("rule")
    draft.put(
        Bucket=draft.need("bucket"),
        OwnershipControls={"Rules": [{"ObjectOwnership": rule["objectOwnership"]}]},
    )


def _bucket_lifecycle(draft: ResourceRequest) -> None:
    rules = [
        {"iD" if key == "id" else key: value for key, value in rule.items()} for rule in draft.need("rules")
    ]
    shaped = draft.matched(
        "s3", "PutBucketLifecycleConfiguration", {"rules": rules}, "rules", "LifecycleConfiguration"
    )
    draft.put(Bucket=draft.need("bucket"), LifecycleConfiguration=shaped)


def _repository(draft: ResourceRequest) -> None:
    encryption = draft.take("encryptionConfigurations")
    if encryption:
        draft.inputs["encryptionConfiguration"] = encryption[0]


SPECS: dict[str, Spec] = {
    "aws:efs/fileSystem:FileSystem": Spec(
        "efs.create_file_system",
        "FileSystemId",
        tags="list",
        after=_file_system_extras,
        takes=frozenset({"lifecyclePolicies"}),
        outputs=_file_system_outputs,
    ),
    "aws:efs/fileSystemPolicy:FileSystemPolicy": Spec("efs.put_file_system_policy", "=FileSystemId"),
    "aws:efs/mountTarget:MountTarget": Spec(
        "efs.create_mount_target", "MountTargetId", outputs=output_paths(ipAddress="IpAddress")
    ),
    "aws:efs/accessPoint:AccessPoint": Spec(
        "efs.create_access_point", "AccessPointId", tags="list", outputs=output_paths(arn="AccessPointArn")
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
    "aws:s3/bucketVersioning:BucketVersioning": Spec(
        "s3.put_bucket_versioning", "=Bucket", shape=_versioning
    ),
    "aws:s3/bucketOwnershipControls:BucketOwnershipControls": Spec(
        "s3.put_bucket_ownership_controls", "=Bucket", shape=_ownership
    ),
    "aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration": Spec(
        "s3.put_bucket_encryption",
        "=Bucket",
        shape=_nested("PutBucketEncryption", "ServerSideEncryptionConfiguration"),
    ),
    "aws:s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration": Spec(
        "s3.put_bucket_lifecycle_configuration", "=Bucket", shape=_bucket_lifecycle
    ),
    "aws:ecr/repository:Repository": Spec(
        "ecr.create_repository",
        "=repositoryName",
        rename={"name": "repositoryName"},
        autoname="name",
        tags="list",
        shape=_repository,
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
