"""The shape of ``services[]``."""

from __future__ import annotations

from pydantic import Field, ValidationInfo, field_validator, model_validator

from contracts import limits
from contracts.group import release_settings as releases
from contracts.group.release import WorkerRelease
from infra.catalogue import accelerators as catalogue
from infra.schema.capacity import Capacity
from infra.schema.cluster.kubernetes import check_capacity, refused
from infra.schema.services.health import Health
from infra.schema.services.on_premises import OnPremises
from infra.schema.services.queues.kinds import MODELS, AnyQueue
from infra.schema.services.scaling import Scaling
from infra.schema.work import Work


class Service(Work):
    """GPU workers that serve requests.

    Without image and command a worker does nothing but report. An instance is ready when all its workers
    are. An accelerator of another maker than NVIDIA has no container toolkit here, and its whole instance
    counts as one GPU.
    """

    slots_per_gpu: limits.SlotsPerGpu = 1
    """Workers that share each GPU."""
    drain_seconds: limits.DrainSeconds = 0
    """So long before AWS takes the instance its workers take no new request."""
    image: limits.ContainerImage | None = None
    """The worker's container, by its digest."""
    command: limits.Arguments = ()
    """The container's arguments, or without an image a process of the AMI."""
    says_ready: bool = False
    """Whether a worker counts only once it has said so itself, and not from its start."""
    queue: AnyQueue | None = None
    """What its workers read; each is told where it is, in ``SPOT_WORK_URL`` and what stands beside it."""
    health: Health = Field(default_factory=Health)
    """How its workers are watched."""
    on_premises: OnPremises | None = None
    """Who may run the same workers elsewhere."""
    scaling: Scaling | None = None
    """As many workers as the load needs."""

    @property
    def slots(self) -> dict[str, int]:
        """Worker slots by instance type."""
        return {kind: count * self.slots_per_gpu for kind, count in _gpus(self.capacity).items()}

    @property
    def workers_per_slot(self) -> int:
        """How many workers stand in for one of what ``capacity.target`` counts: an instance, or a GPU."""
        return self.slots_per_gpu if self.capacity.unit == "gpus" else max(self.slots.values())

    @property
    def wanted(self) -> releases.Wanted | None:
        """From what the workers are to be started, None where they only report."""
        if self.image is None and not self.command:
            return None
        release = WorkerRelease(self.image or "", tuple(self.command), self.environment)
        return releases.Wanted(release, self.workers_per_slot)

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

    @field_validator("command")
    @classmethod
    def _fits_a_parameter(cls, command: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        release = WorkerRelease(info.data.get("image") or "-", command, info.data.get("environment", {}))
        size = len(releases.dumps(releases.Wanted(release, 9999)).encode())
        if size > releases.MOST_BYTES:
            raise ValueError(
                f"image, command and environment have {size} bytes together, allowed: {releases.MOST_BYTES}, "
                "which a parameter holds"
            )
        return command

    @field_validator("queue")
    @classmethod
    def _somebody_reads_it(cls, queue: AnyQueue | None, info: ValidationInfo) -> AnyQueue | None:
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
        in_containers, queue = info.data.get("image") is not None, info.data.get("queue")
        if hosts is not None and in_containers and queue is not None and not queue.has_secret:
            others = " or ".join(model.title for model in MODELS if model.has_secret)
            raise ValueError(
                f"beside a queue of {queue.title} and an image, whose containers have no credentials there, "
                f"allowed: a queue of {others}, or a command alone"
            )
        return hosts

    @field_validator("scaling")
    @classmethod
    def _can_scale(cls, scaling: Scaling | None, info: ValidationInfo) -> Scaling | None:
        capacity: Capacity | None = info.data.get("capacity")
        if scaling is None or capacity is None:
            return scaling
        if info.data.get("queue", "") is None:
            raise ValueError("without a queue, which tells what comes, allowed: with one")
        if not capacity.is_kept:
            raise ValueError("beside fleetType 'request', which asks once, allowed: 'maintain'")
        if capacity.unit == "instances" and len({*_gpus(capacity).values()}) > 1:
            raise ValueError("instances with different numbers of GPUs, allowed: capacity.unit 'gpus'")
        if scaling.min < capacity.on_demand_base:
            base = capacity.on_demand_base
            raise ValueError(f"min {scaling.min} is below capacity.onDemandBase, allowed: at least {base}")
        most = capacity.most_target
        if most < max(1, scaling.highest_floor):
            raise ValueError(
                f"capacity.max leaves room for a target of {most}, allowed: at least the highest of min and "
                f"floors, {max(1, scaling.highest_floor)}"
            )
        return scaling

    @model_validator(mode="after")
    def _can_run_there(self) -> Service:
        if self.runs_on != "kubernetes":
            return self
        if self.image is None:
            raise refused("without an image", "with one, which runs as a pod")
        if self.slots_per_gpu > 1:
            # Many to the device plugin and one to Karpenter, which would start too many nodes.
            raise refused(f"beside slotsPerGpu {self.slots_per_gpu}", "1")
        if self.on_premises is not None:
            raise refused("beside onPremises", "on instances")
        check_capacity(self.capacity)
        return self


def _gpus(capacity: Capacity) -> dict[str, int]:
    """Return accelerators by instance type: of another maker than NVIDIA the instance counts as one."""
    return {t: catalogue.lookup(t).accelerators if capacity.is_nvidia else 1 for t in capacity.types}
