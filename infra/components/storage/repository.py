"""An ECR repository of worker images."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

from infra import schema
from infra.scope import Scope


@dataclass(frozen=True)
class RepositoryArgs:
    """Arguments of ``Repository``."""

    scope: Scope
    settings: schema.Repository


class Repository(pulumi.ComponentResource):
    """An encrypted repository with immutable tags, scan on push and a lifecycle policy."""

    url: pulumi.Output[str]
    arn: pulumi.Output[str]

    def __init__(self, name: str, args: RepositoryArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        """Declare the repository."""
        super().__init__("gpu-spot:infra:Repository", name, None, opts)
        key = args.scope.kms_key_arn
        repository = aws.ecr.Repository(
            name,
            image_tag_mutability="IMMUTABLE",
            image_scanning_configuration=aws.ecr.RepositoryImageScanningConfigurationArgs(scan_on_push=True),
            encryption_configurations=[
                aws.ecr.RepositoryEncryptionConfigurationArgs(
                    encryption_type="AES256" if key is None else "KMS", kms_key=key
                )
            ],
            tags=args.scope.tags(name),
            opts=args.scope.stateful_options(self),
        )
        aws.ecr.LifecyclePolicy(
            name,
            repository=repository.name,
            policy=json.dumps(_lifecycle(args.settings.keep_images)),
            opts=pulumi.ResourceOptions(parent=self),
        )
        self.url, self.arn = repository.repository_url, repository.arn
        self.register_outputs({"url": self.url})


def _lifecycle(keep: int) -> dict[str, object]:
    selection = {"tagStatus": "any", "countType": "imageCountMoreThan", "countNumber": keep}
    return {
        "rules": [
            {
                "rulePriority": 1,
                "description": f"Keep the newest {keep}",
                "selection": selection,
                "action": {"type": "expire"},
            }
        ]
    }
