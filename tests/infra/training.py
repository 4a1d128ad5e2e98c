"""A stack with a training job, beside what the environments that ship declare."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.infra.declared import ROOT, Run, run, variant

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


def stack(folder: Path, stack_name: str = "dev", **changes: Any) -> Run:
    """Run a stack that ships with a training job more, and an image for its service."""

    def change(config: dict[str, Any]) -> None:
        config["gpu-spot:services"][0]["image"] = IMAGE
        config["gpu-spot:training"] = [job(**changes)]

    folder.mkdir(exist_ok=True)
    return run("known", variant(folder, change, ROOT / "stacks" / f"Pulumi.{stack_name}.yaml"), stack_name)


OWN = {"kind": "rabbitmq", "instanceType": "mq.m7g.large"}
EXISTING = {"kind": "rabbitmq", "existing": {"secret": "queues/ocr"}}


def queue_stack(
    folder: Path, queue: dict[str, Any] | None = None, base: str = "dev", mode: str = "known", **settings: Any
) -> Run:
    """Run a stack that ships with a queue on its first service; ``settings`` are the stack's."""
    given = OWN if queue is None else queue

    def change(config: dict[str, Any]) -> None:
        config["gpu-spot:services"][0] |= {"command": ["serve"], "queue": given}
        config.update({f"gpu-spot:{key}": value for key, value in settings.items()})

    return run(mode, variant(folder, change, ROOT / "stacks" / f"Pulumi.{base}.yaml"), base)
