"""The layer with boto3 that all functions of a stack share."""

from __future__ import annotations

import pulumi
import pulumi_aws as aws

from infra.archives import sdk
from infra.scope import Scope


class SdkLayer(pulumi.ComponentResource):
    """A version of the layer. Lambda's own boto3 is older and changes without the stack.

    Packages of a layer precede the runtime's. Source: Lambda guide, "Packaging your layer content".
    """

    arn: pulumi.Output[str]

    def __init__(self, name: str, scope: Scope, opts: pulumi.ResourceOptions | None = None) -> None:
        """Declare the layer."""
        super().__init__("gpu-spot:infra:SdkLayer", name, None, opts)
        layer = aws.lambda_.LayerVersion(
            name,
            layer_name=scope.physical(name),
            description="boto3 and the service models that the functions use",
            code=pulumi.FileArchive(str(sdk.build_layer().path)),
            compatible_runtimes=[aws.lambda_.Runtime.PYTHON3D13],
            opts=pulumi.ResourceOptions(parent=self),
        )
        self.arn = layer.arn
        self.register_outputs({"arn": self.arn})
