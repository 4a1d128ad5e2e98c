"""Modules and AWS models that the server of ``tests.apart`` loads once for all processes it forks.

It runs no program and makes no call.
"""

from __future__ import annotations

import gc
import importlib
import re
import warnings
from pathlib import Path
from typing import Final

# The provider loads a service's module on first use.
_SERVICES: Final = (
    *("autoscaling", "budgets", "cloudwatch", "dynamodb", "ebs", "ec2", "ecr", "efs", "eks", "fis", "iam"),
    *("kms", "lambda_", "lb", "mq", "route53", "s3", "secretsmanager", "sns", "sqs", "ssm", "vpc"),
)
# A client reads the model of its service, which a sandbox keeps for the process.
_CLIENTS: Final = (
    *("autoscaling", "budgets", "cloudwatch", "dynamodb", "ebs", "ec2", "ecr", "efs", "events", "iam", "kms"),
    *("lambda", "logs", "s3", "sns", "sqs", "ssm", "sts"),
)

# Under the SDK's mocks no engine needs the stack trace of each resource.
resource, messages = (
    importlib.import_module(f"pulumi.runtime.{name}") for name in ("resource", "proto.source_pb2")
)
resource._get_stack_trace = messages.StackTrace

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    for name in (
        "gpu_spot.preflight.stack",
        "infra.program.stack",
        "rehearsal.rehearse",
        "pulumi_on_moto.program.deployment",
        "pulumi_kubernetes.apiextensions.v1",
        "pulumi_kubernetes.helm.v3",
        "pulumi_kubernetes.yaml.yaml",
    ):
        importlib.import_module(name)
    for service in _SERVICES:
        hasattr(importlib.import_module(f"pulumi_aws.{service}"), "anything")
    with importlib.import_module("pulumi_on_moto.emulator").sandbox("us-west-2") as clients:
        for service in _CLIENTS:
            clients(service)

# The SDK finds the types of a class's properties once in a process; the program names these classes.
types = importlib.import_module("pulumi._types")
program = "".join(path.read_text("utf-8") for path in (Path(__file__).parents[1] / "infra").rglob("*.py"))
for service, name in sorted({*re.findall(r"\baws\.(\w+)\.([A-Z]\w+)\(", program)}):
    types._types_from_py_properties(getattr(importlib.import_module(f"pulumi_aws.{service}"), name))

# Made once for all processes.
for archive, function in (("agent", "build"), ("sdk", "build_layer"), ("functions", "sources")):
    getattr(importlib.import_module(f"infra.archives.{archive}"), function)()

# A garbage collection in a forked process would copy these pages (gc.freeze, "before fork"); a program takes
# a seventh less if new objects are looked at less often.
gc.collect()
gc.freeze()
gc.set_threshold(100_000, 20, 20)
