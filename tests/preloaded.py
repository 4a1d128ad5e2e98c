"""What the server of ``tests.apart`` imports once, for all the processes that it forks. It runs nothing."""

from __future__ import annotations

import importlib
import warnings
from typing import Final

# Of the provider only these are declared; a service's module loads when something is first asked of it.
_SERVICES: Final = (
    *("autoscaling", "budgets", "cloudwatch", "dynamodb", "ebs", "ec2", "ecr", "efs", "iam"),
    *("lambda_", "s3", "sns", "sqs", "ssm"),
)

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    for name in ("infra.stack", "gpu_spot.live.rehearsal", "pulumi_on_moto.program.run"):
        importlib.import_module(name)
    for service in _SERVICES:
        hasattr(importlib.import_module(f"pulumi_aws.{service}"), "anything")
