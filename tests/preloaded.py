"""What the server of ``tests.apart`` imports once, and AWS's models that it reads, for all that it forks.

It runs no program and makes no call.
"""

from __future__ import annotations

import gc
import importlib
import warnings
from typing import Final

# Of the provider only these are declared; a service's module loads when something is first asked of it.
_SERVICES: Final = (
    *("autoscaling", "budgets", "cloudwatch", "dynamodb", "ebs", "ec2", "ecr", "efs", "iam"),
    *("kms", "lambda_", "mq", "s3", "secretsmanager", "sns", "sqs", "ssm", "vpc"),
)
# A client reads the model of its service; a sandbox keeps it for the process.
_CLIENTS: Final = (
    *("autoscaling", "budgets", "cloudwatch", "dynamodb", "ebs", "ec2", "ecr", "efs", "events", "iam", "kms"),
    *("lambda", "logs", "s3", "sns", "sqs", "ssm", "sts"),
)

# A program under the SDK's mocks has no engine to be told where each resource was declared.
where, name, nothing = importlib.import_module("pulumi_on_moto.fixes.speedups.stack_traces").STACK_TRACES
setattr(where, name, nothing)

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    for name in ("infra.program.stack", "rehearsal.rehearse", "pulumi_on_moto.program.run"):
        importlib.import_module(name)
    for service in _SERVICES:
        hasattr(importlib.import_module(f"pulumi_aws.{service}"), "anything")
    with importlib.import_module("pulumi_on_moto.sandbox").sandbox("us-west-2") as clients:
        for service in _CLIENTS:
            clients(service)

# What is here stays: a collection in a forked process would copy its pages (gc.freeze, "before fork").
gc.collect()
gc.freeze()
