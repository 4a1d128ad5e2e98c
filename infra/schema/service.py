"""The shape of ``services[]``."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, ValidationInfo, field_validator

from infra import accelerators as catalogue
from infra.schema.capacity import Capacity
from infra.schema.health import Health
from infra.schema.on_premises import OnPremises
from infra.schema.queue import Queue
from infra.schema.sqs_queue import SqsQueue
from infra.schema.work import Work
from userdata.agent.config import limits


class Service(Work):
    """GPU workers that serve requests: ``slots_per_gpu`` of them share each GPU.

    A worker is a container of ``image``, given ``command`` as arguments, or without an image ``command`` as a
    process of the AMI. Without either it does nothing but report. An instance is ready when all its workers
    are: at their start, or with ``says_ready`` when they say so themselves. An accelerator of another maker
    than NVIDIA has no container toolkit here, and its whole instance counts as one GPU.

    With ``queue`` every worker is told where it is, in ``SPOT_WORK_URL`` and what stands beside it. With
    ``on_premises`` hosts elsewhere may run the same workers and report them.
    """

    slots_per_gpu: limits.SlotsPerGpu = 1
    drain_seconds: limits.DrainSeconds = 0
    image: limits.ContainerImage | None = None
    command: limits.Arguments = ()
    says_ready: bool = False
    queue: Annotated[Queue | SqsQueue, Field(discriminator="kind")] | None = None
    health: Health = Field(default_factory=Health)
    on_premises: OnPremises | None = None

    @property
    def slots(self) -> dict[str, int]:
        """Worker slots by instance type."""
        gpus = {
            t: catalogue.lookup(t).accelerators if self.capacity.is_nvidia else 1 for t in self.capacity.types
        }
        return {kind: count * self.slots_per_gpu for kind, count in gpus.items()}

    @field_validator("image")
    @classmethod
    def _toolkit_is_nvidias(cls, image: str | None, info: ValidationInfo) -> str | None:
        capacity: Capacity | None = info.data.get("capacity")
        if image is not None and capacity is not None:
            vendor = catalogue.lookup(capacity.types[0]).family.vendor
            if vendor != "nvidia":
                raise ValueError(f"a container on accelerators of {vendor!r}, allowed: on NVIDIA's")
        return image

    @field_validator("says_ready")
    @classmethod
    def _only_work_speaks(cls, value: bool, info: ValidationInfo) -> bool:
        if value and info.data.get("image") is None and not info.data.get("command"):
            raise ValueError("true without an image or a command, which would say it, allowed: false")
        return value

    @field_validator("queue")
    @classmethod
    def _somebody_reads_it(
        cls, queue: Queue | SqsQueue | None, info: ValidationInfo
    ) -> Queue | SqsQueue | None:
        if queue is None:
            return None
        if info.data.get("image") is None and not info.data.get("command"):
            raise ValueError("without an image or a command, which would read it, allowed: with one of them")
        for name in info.data.get("environment", {}):
            if name.startswith("SPOT_WORK_"):
                raise ValueError(
                    f"beside {name} in environment, which says the same, allowed: one of the two"
                )
        return queue

    @field_validator("on_premises")
    @classmethod
    def _can_run_elsewhere(cls, hosts: OnPremises | None, info: ValidationInfo) -> OnPremises | None:
        if hosts is not None and info.data.get("image") is None and not info.data.get("command"):
            raise ValueError("without an image or a command to run there, allowed: with one of them")
        if hosts is not None and info.data.get("datasets"):
            raise ValueError("beside datasets, which are volumes of AWS, allowed: one of the two")
        in_containers = info.data.get("image") is not None
        if hosts is not None and in_containers and isinstance(info.data.get("queue"), SqsQueue):
            raise ValueError(
                "beside a queue of SQS and an image, whose containers have no credentials there, allowed: "
                "a queue of RabbitMQ, or a command alone"
            )
        return hosts
