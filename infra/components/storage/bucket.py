"""An S3 bucket."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import pulumi
import pulumi_aws as aws

from infra import schema
from infra.iam import resource_policies
from infra.iam.statement import Statement, document
from infra.scope import Scope

MAX_NAME_LENGTH: Final = 63  # S3 user guide, "Bucket naming rules"


@dataclass(frozen=True)
class BucketArgs:
    """Arguments of ``Bucket``.

    Attributes:
        disposable: Whether the bucket is deleted with its objects.
        with_customer_key: Whether the customer's key encrypts objects, if there is one; else S3's own does.
        writers: Further statements of its policy, by its ARN.
    """

    scope: Scope
    settings: schema.Bucket
    disposable: bool = False
    with_customer_key: bool = True
    writers: Callable[[pulumi.Output[str]], Sequence[Statement]] = lambda _: ()


class Bucket(pulumi.ComponentResource):
    """An encrypted, versioned, private bucket that accepts TLS only, with its lifecycle rules."""

    name: pulumi.Output[str]
    arn: pulumi.Output[str]

    def __init__(self, name: str, args: BucketArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        """Declare the bucket."""
        super().__init__("gpu-spot:infra:Bucket", name, None, opts)
        # Protected like the bucket: they keep it private and versioned.
        child = pulumi.ResourceOptions(parent=self) if args.disposable else args.scope.stateful_options(self)
        bucket = aws.s3.Bucket(
            name, force_destroy=args.disposable or None, tags=args.scope.tags(name), opts=child
        )
        self.name, self.arn = bucket.id, bucket.arn
        key = args.scope.kms_key_arn if args.with_customer_key else None
        private = aws.s3.BucketPublicAccessBlock(
            name,
            bucket=bucket.id,
            block_public_acls=True,
            block_public_policy=True,
            ignore_public_acls=True,
            restrict_public_buckets=True,
            opts=child,
        )
        # S3 rejects concurrent changes of a bucket's access.
        aws.s3.BucketPolicy(
            name,
            bucket=bucket.id,
            policy=document([*resource_policies.bucket(bucket.arn), *args.writers(bucket.arn)]),
            opts=pulumi.ResourceOptions.merge(child, pulumi.ResourceOptions(depends_on=[private])),
        )
        aws.s3.BucketOwnershipControls(
            name,
            bucket=bucket.id,
            rule=aws.s3.BucketOwnershipControlsRuleArgs(object_ownership="BucketOwnerEnforced"),
            opts=child,
        )
        aws.s3.BucketServerSideEncryptionConfiguration(
            name,
            bucket=bucket.id,
            rules=[
                aws.s3.BucketServerSideEncryptionConfigurationRuleArgs(
                    apply_server_side_encryption_by_default=aws.s3.BucketServerSideEncryptionConfigurationRuleApplyServerSideEncryptionByDefaultArgs(
                        sse_algorithm="AES256" if key is None else "aws:kms", kms_master_key_id=key
                    ),
                    # Fewer KMS requests.
                    bucket_key_enabled=key is not None or None,
                )
            ],
            opts=child,
        )
        versioning = aws.s3.BucketVersioning(
            name,
            bucket=bucket.id,
            versioning_configuration=aws.s3.BucketVersioningVersioningConfigurationArgs(status="Enabled"),
            opts=child,
        )
        aws.s3.BucketLifecycleConfiguration(
            name,
            bucket=bucket.id,
            rules=_rules(args.settings),
            # Rules for noncurrent versions need versioning.
            opts=pulumi.ResourceOptions.merge(child, pulumi.ResourceOptions(depends_on=[versioning])),
        )
        self.register_outputs({"name": self.name})


def _rules(settings: schema.Bucket) -> list[aws.s3.BucketLifecycleConfigurationRuleArgs]:
    rules = [
        aws.s3.BucketLifecycleConfigurationRuleArgs(
            id="old-versions",
            status="Enabled",
            filter=aws.s3.BucketLifecycleConfigurationRuleFilterArgs(prefix=""),
            noncurrent_version_expiration=aws.s3.BucketLifecycleConfigurationRuleNoncurrentVersionExpirationArgs(
                noncurrent_days=settings.old_version_days
            ),
            abort_incomplete_multipart_upload=aws.s3.BucketLifecycleConfigurationRuleAbortIncompleteMultipartUploadArgs(
                days_after_initiation=7
            ),
        )
    ]
    if settings.expire_days is not None:
        rules.append(
            aws.s3.BucketLifecycleConfigurationRuleArgs(
                id="expire",
                status="Enabled",
                filter=aws.s3.BucketLifecycleConfigurationRuleFilterArgs(prefix=""),
                expiration=aws.s3.BucketLifecycleConfigurationRuleExpirationArgs(days=settings.expire_days),
            )
        )
    return rules
