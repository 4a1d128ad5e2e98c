"""Stacks whose service reads a queue."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.infra.declared import ROOT, Run, run, variant

OWN = {"kind": "rabbitmq", "instanceType": "mq.m7g.large"}
EXISTING = {"kind": "rabbitmq", "existing": {"secret": "queues/ocr"}}


def stack(
    folder: Path, queue: dict[str, Any] | None = None, base: str = "dev", mode: str = "known", **settings: Any
) -> Run:
    """Run a stack that ships with a queue on its first service; ``settings`` are the stack's."""
    given = OWN if queue is None else queue

    def change(config: dict[str, Any]) -> None:
        config["gpu-spot:services"][0] |= {"command": ["serve"], "queue": given}
        config.update({f"gpu-spot:{key}": value for key, value in settings.items()})

    return run(mode, variant(folder, change, ROOT / f"Pulumi.{base}.yaml"), base)
