"""The bucket from which instances download the node agent."""

from __future__ import annotations

import pulumi
import pulumi_aws as aws

from contracts import names
from infra import schema
from infra.archives import agent as agent_archive
from infra.components.storage.bucket import Bucket, BucketArgs
from infra.scope import Scope


class AgentStore(pulumi.ComponentResource):
    """A bucket with the agent's archive, whose key contains its hash.

    Archives of earlier versions are retained: an instance that boots during an update still finds its own.
    """

    bucket: pulumi.Output[str]
    arns: list[pulumi.Output[str]]
    """Of the bucket and of its objects."""
    archives_arn: pulumi.Output[str]
    """All archives: an instance of an older launch template downloads an older one, also during an update."""
    archive: agent_archive.AgentArchive

    def __init__(self, name: str, scope: Scope, opts: pulumi.ResourceOptions | None = None) -> None:
        """Declare the store."""
        super().__init__("gpu-spot:infra:AgentStore", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        # Its content can be rebuilt.
        bucket = Bucket(name, BucketArgs(scope, schema.Bucket(name="agent"), disposable=True), child)
        self.archive = agent_archive.build()
        stored = aws.s3.BucketObjectv2(
            name,
            bucket=bucket.name,
            key=self.archive.key,
            source=pulumi.FileAsset(str(self.archive.path)),
            content_type="application/zip",
            # Without the user's tags: an S3 object has at most ten.
            tags={"Name": scope.physical(name), names.TAG_STACK: scope.stack},
            opts=pulumi.ResourceOptions(parent=self, retain_on_delete=True),
        )
        # The object's output, not the bucket's: instances depend on the uploaded archive.
        self.bucket, self.arns = stored.bucket, [bucket.arn, pulumi.Output.concat(bucket.arn, "/*")]
        self.archives_arn = pulumi.Output.concat(bucket.arn, "/", agent_archive.DIRECTORY, "/*")
        self.register_outputs({"bucket": self.bucket, "key": self.archive.key})
