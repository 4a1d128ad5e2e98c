"""Storage: EFS file systems, S3 buckets, ECR repositories."""

from __future__ import annotations

from typing import Any, Final

from pulumi_on_moto.mapping.archives import asset_bytes
from pulumi_on_moto.mapping.base import Draft, Made, Spec, found
from pulumi_on_moto.mapping.shapes import key_values

_NEVER_DELETED: Final = "nothing is ever deleted here"


def _file_system_extras(made: Made) -> None:
    policies = made.inputs.get("lifecyclePolicies") or []
    if policies:
        draft = Draft(made.type, made.name, "", made.clients, {})
        shaped = draft.matched(
            "efs", "PutLifecycleConfiguration", policies, "lifecyclePolicies", "LifecyclePolicies"
        )
        made.clients("efs").put_lifecycle_configuration(FileSystemId=made.id, LifecyclePolicies=shaped)


def _file_system_outputs(made: Made) -> dict[str, Any]:
    return {
        "arn": made.find("FileSystemArn"),
        "dnsName": f"{made.id}.efs.{made.clients.region}.amazonaws.com",
    }


def _bucket(draft: Draft) -> None:
    name = draft.need("bucket")
    draft.put(Bucket=name)
    if draft.clients.region != "us-east-1":
        draft.put(CreateBucketConfiguration={"LocationConstraint": draft.clients.region})


def _bucket_tags(made: Made) -> None:
    tags = {**(made.inputs.get("tagsAll") or {}), **(made.inputs.get("tags") or {})}
    if tags:
        made.clients("s3").put_bucket_tagging(
            Bucket=made.id, Tagging={"TagSet": [{"Key": key, "Value": value} for key, value in tags.items()]}
        )


def _bucket_outputs(made: Made) -> dict[str, Any]:
    return {
        "arn": f"arn:aws:s3:::{made.id}",
        "bucketDomainName": f"{made.id}.s3.amazonaws.com",
        "bucketRegionalDomainName": f"{made.id}.s3.{made.clients.region}.amazonaws.com",
    }


def _object(draft: Draft) -> None:
    if "content" in draft.inputs:
        draft.put(Body=draft.need("content").encode())
    else:
        draft.put(Body=asset_bytes(draft.need("source")))


def _object_tags(made: Made) -> None:
    tags = {**(made.inputs.get("tagsAll") or {}), **(made.inputs.get("tags") or {})}
    if tags:
        made.clients("s3").put_object_tagging(
            Bucket=made.params["Bucket"], Key=made.id, Tagging={"TagSet": key_values(tags)}
        )


def _object_outputs(made: Made) -> dict[str, Any]:
    return {
        "arn": f"arn:aws:s3:::{made.params['Bucket']}/{made.id}",
        "etag": made.find("ETag"),
        "versionId": made.find("VersionId"),
    }


def _nested(operation: str, parameter: str) -> Any:
    """Return a shaper that puts all inputs but the bucket below one parameter of an S3 operation."""

    def shape(draft: Draft) -> None:
        bucket = draft.need("bucket")
        shaped = draft.matched("s3", operation, dict(draft.inputs), parameter, parameter)
        draft.inputs.clear()
        draft.put(Bucket=bucket, **{parameter: shaped})

    return shape


def _versioning(draft: Draft) -> None:
    draft.put(
        Bucket=draft.need("bucket"),
        VersioningConfiguration={"Status": draft.need("versioningConfiguration")["status"]},
    )


def _ownership(draft: Draft) -> None:
    rule = draft.need("rule")
    draft.put(
        Bucket=draft.need("bucket"),
        OwnershipControls={"Rules": [{"ObjectOwnership": rule["objectOwnership"]}]},
    )


def _bucket_lifecycle(draft: Draft) -> None:
    rules = [
        {"iD" if key == "id" else key: value for key, value in rule.items()} for rule in draft.need("rules")
    ]
    shaped = draft.matched(
        "s3", "PutBucketLifecycleConfiguration", {"rules": rules}, "rules", "LifecycleConfiguration"
    )
    draft.put(Bucket=draft.need("bucket"), LifecycleConfiguration=shaped)


def _repository(draft: Draft) -> None:
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
        "efs.create_mount_target", "MountTargetId", outputs=found(ipAddress="IpAddress")
    ),
    "aws:efs/accessPoint:AccessPoint": Spec(
        "efs.create_access_point", "AccessPointId", tags="list", outputs=found(arn="AccessPointArn")
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
        outputs=found(
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
