"""A stack with a training job, beside what the environments that ship declare."""

from __future__ import annotations

from typing import Any

from tests.infra.declared import Run, edited_stack, in_service

REVISION = "0123456789abcdef0123456789abcdef01234567"
IMAGE = f"210987654321.dkr.ecr.us-west-2.amazonaws.com/team/worker@sha256:{'0' * 64}"

BLOCK = {"reservation": "cr-0123456789abcdef0", "instanceType": "g6e.48xlarge", "zone": "us-west-2b"}


def job(**changes: Any) -> dict[str, Any]:
    return {
        "name": "resnet",
        "capacity": {"kind": "mixed-asg", "target": 1, "instanceTypes": ["g5.xlarge", "g6.xlarge"]},
        "repository": "https://example.com/vision/resnet.git",
        "revision": REVISION,
        "command": ["python", "train.py", "--epochs=90"],
        "dataset": "s3://datasets/imagenet/",
        "volumeGiB": 500,
        **changes,
    }


def stack(base: str = "dev", **changes: Any) -> Run:
    """Run a stack that ships with a training job more, and an image for its service."""
    return edited_stack({"services[0].image": IMAGE, "training": [job(**changes)]}, base)


OWN = {"kind": "rabbitmq", "instanceType": "mq.m7g.large"}
EXISTING = {"kind": "rabbitmq", "existing": {"secret": "queues/ocr"}}


def queue_stack(queue: dict[str, Any] = OWN, base: str = "dev", **settings: Any) -> Run:
    """Run a stack that ships with a queue on its first service; ``settings`` are the stack's."""
    return edited_stack({**in_service(command=["serve"], queue=queue), **settings}, base)
