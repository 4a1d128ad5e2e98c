"""Resources of the sample stacks after a deployment on moto, with ids and ARNs in AWS's format."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from gpu_spot.declared import stackfile
from infra.settings import load_settings
from pulumi_on_moto.emulator import sandbox
from pulumi_on_moto.fixes import parameters
from pulumi_on_moto.program.deployment import deploy
from rehearsal.commands.deployed import make_given
from tests.apart import apart
from tests.infra import training
from tests.infra.declared import STACKS

ROOT = Path(__file__).resolve().parents[2]
EXTENDED = "fuller"
"""The sample ``prod`` with additional entries, so that every IAM statement is in some document."""
NAMES = (*STACKS, "eks", EXTENDED)
_TYPES = {"kind": "mixed-asg", "target": 1, "instanceTypes": ["g5.xlarge", "g6.xlarge"]}
_REQUIREMENTS = {
    "target": 2,
    "instanceRequirements": {
        "accelerators": {"min": 1, "max": 1},
        "acceleratorMemoryGiB": {"min": 16, "max": 48},
        "vcpus": {"min": 4, "max": 32},
        "memoryGiB": {"min": 16, "max": 256},
    },
}
_EXTENDED_CONFIG: dict[str, Any] = {
    "identity": {
        "previews": {
            **{"repository": "acme@12/models@345", "stateBucket": "acme-state", "createProvider": True},
            "stateKmsKeyArn": "arn:aws:kms:us-west-2:123456789012:key/00000000-0000-0000-0000-000000000001",
        },
        "deploys": {"policies": ["arn:aws:iam::123456789012:policy/deploys"], "environment": "production"},
    },
    "training": [
        training.job(capacity=_TYPES, checkpoints="checkpoints"),
        training.job(
            **{"capacity": _TYPES, "name": "bert", "dataset": "s3://books/", "deadlineAfter": "PT6H"},
            schedule={"at": "cron(0 2 * * ? *)", "timeZone": "Europe/Berlin", "keepRuns": 7},
        ),
        training.job(
            name="llama",
            capacity={**_TYPES, "target": 2, "instanceTypes": ["p4d.24xlarge", "p4de.24xlarge"]},
            nodes={"max": 2, "zone": "us-west-2a", "placementGroup": True, "efa": True},
            volumeGiB=0,
            checkpoints="checkpoints",
            dataset=None,
        ),
    ],
    "sharedHosts": [
        {
            "name": "lab",
            "capacity": {**_TYPES, "instanceTypes": ["g5.12xlarge"], "fallback": {"warmInstances": 0}},
            "allowedSources": ["10.30.0.0/16"],
            "tenants": [
                {
                    **{"name": "a", "uid": 2001, "cpus": 2, "memoryGiB": 4, "image": training.IMAGE},
                    "secret": "lab/a",
                    **{"hostPort": 8001, "containerPort": 80},
                }
            ],
        }
    ],
    "services": [
        {
            "name": "inference",
            "capacity": {"kind": "mixed-asg", **_REQUIREMENTS},
            "image": training.IMAGE,
            "queue": {
                "kind": "rabbitmq",
                "instanceType": "mq.m7g.large",
                "deployment": "cluster",
                "allowedSources": ["10.30.0.0/16"],
            },
            "datasets": [{"snapshot": "snap-0123456789abcdef0", "path": "/data/coco"}],
        },
        {
            "name": "chat",
            "capacity": _TYPES,
            "command": ["serve"],
            "http": {
                **{"port": 8000, "allowedSources": ["10.30.0.0/16"], "domain": "chat.example.com"},
                "certificateArn": "arn:aws:acm:us-west-2:123456789012:certificate/"
                "00000000-0000-0000-0000-000000000000",
                "hostedZoneId": "Z0123456789",
            },
        },
        {
            "name": "batch",
            "capacity": {"kind": "spot-fleet", **_REQUIREMENTS},
            "command": ["serve"],
            "queue": {"kind": "rabbitmq", "existing": {"secret": "queues/batch"}},
            "scaling": {"min": 0},
            "onPremises": {
                "trustAnchor": "arn:aws:rolesanywhere:us-west-2:123456789012:trust-anchor/"
                "00000000-0000-0000-0000-000000000000",
                "organizationalUnit": "gpu-hosts",
                "hosts": [
                    {"name": "gpu-1", "gpus": 8, "principals": ["arn:aws:iam::123456789012:role/ops"]},
                    {"name": "gpu-2", "gpus": 8},
                ],
            },
        },
        {
            "name": "search",
            "capacity": _TYPES,
            "scaling": {
                "source": "log",
                "log": {"group": "/search/requests", "pattern": "{ $.took = * }", "seconds": "$.took"},
            },
        },
    ],
}


@dataclass(frozen=True)
class Declared:
    """A resource: Pulumi's type, its logical name, its id in AWS, inputs and outputs in camelCase."""

    type: str
    name: str
    id: str
    inputs: dict[str, Any]
    outputs: dict[str, Any]


@dataclass(frozen=True)
class Stack:
    """The resources of a stack, and deprecation warnings of its calls."""

    resources: list[Declared]
    deprecations: set[str]


def _deployed(stack: str, overrides: dict[str, Any]) -> Stack:
    config = stackfile.load(ROOT, stack, overrides)
    with sandbox(config.region) as clients:
        with warnings.catch_warnings(record=True) as caught:
            warnings.filterwarnings("always", category=DeprecationWarning, module=parameters.__name__)
            make_given(load_settings(config.values), clients)
            deployment = deploy(clients, config)
        resources = [
            Declared(
                resource.type, resource.name, resource.id, _values(resource.inputs), _values(resource.outputs)
            )
            for resource in deployment.resources
            if not resource.is_component and not resource.type.startswith("pulumi:")
        ]
        return Stack(
            resources, {str(warning.message) for warning in caught if warning.filename == parameters.__file__}
        )


@cache
def deployed(stack: str) -> Stack:
    return apart(_deployed, "prod", _EXTENDED_CONFIG) if stack == EXTENDED else apart(_deployed, stack, {})


def _values(value: Any) -> Any:
    """Return JSON values only: whole numbers as integers, as the engine sends them, and no archives."""
    if isinstance(value, dict):
        return {key: _values(nested) for key, nested in value.items() if nested is not None}
    if isinstance(value, list):
        return [_values(item) for item in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, str | int | float | bool) else str(value)
