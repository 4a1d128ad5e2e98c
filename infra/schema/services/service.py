"""Settings of ``services[]``."""

from __future__ import annotations

from pydantic import Field, ValidationInfo, field_validator, model_validator

from contracts import limits
from contracts.group import release_settings as releases
from contracts.group.release import WorkerRelease
from contracts.sentences import alternatives
from infra.catalogue import accelerators as catalogue
from infra.schema.capacity import Capacity
from infra.schema.cluster.kubernetes import check_capacity, unsupported_error
from infra.schema.services.health import Health
from infra.schema.services.http import Http, check_workers
from infra.schema.services.on_premises import OnPremises
from infra.schema.services.queues import MODELS, AnyQueue
from infra.schema.services.scaling import Scaling
from infra.schema.work import Work


class Service(Work):
    """GPU workers that serve requests.

    Without image and command, a worker only reports. An instance is ready when all its workers are.
    Containers need NVIDIA GPUs; an instance with accelerators of another vendor counts as one GPU.
    """

    slots_per_gpu: limits.SlotsPerGpu = 1
    """Number of workers that share each GPU."""
    gpus_per_worker: limits.GpusPerWorker = 1
    """Number of whole, neighbouring GPUs of each worker. Each instance type has a multiple of it."""
    image: limits.ContainerImage | None = None
    """Container image of the worker, with its digest."""
    read_only_root: bool = True
    """Whether containers have a read-only root file system: they write to the scratch space of the instance,
    which has ``HOME``, ``/tmp`` and the caches (``HF_HOME``, ``TORCH_HOME``, ``XDG_CACHE_HOME``)."""
    command: limits.Arguments = ()
    """Arguments of the container; without an image, the program on the machine image and its arguments. With
    ``http``, ``$(GPU_SPOT_PORT)`` is the worker's port."""
    reports_readiness: bool = False
    """Whether a worker reports when it is ready, by creating the file ``$GPU_SPOT_READY``. If false, it is
    ready from its start."""
    queue: AnyQueue | None = None
    """Queue that the workers read. Workers find it in ``SPOT_WORK_URL`` and the other ``SPOT_WORK_*``
    variables."""
    health: Health = Field(default_factory=Health)
    """Health checks of the workers."""
    on_premises: OnPremises | None = None
    """Workers of the service on hosts outside AWS."""
    http: Http | None = None
    """Address at which callers reach the workers, which are then HTTP servers."""
    drain_seconds: limits.DrainSeconds = Field(
        default_factory=lambda values: 30 if values.get("queue") or values.get("http") else 0
    )
    """Seconds before the instance's termination at which its workers stop accepting requests: at least 10,
    also with a smaller value. By default 30 with ``queue`` or ``http``, else 0."""
    scaling: Scaling | None = None
    """Scaling of the service by its load."""

    @property
    def slots(self) -> dict[str, int]:
        """Worker slots by instance type."""
        return {kind: self._workers_on(count) for kind, count in _gpus(self.capacity).items()}

    def _workers_on(self, gpus: int) -> int:
        return gpus // self.gpus_per_worker * self.slots_per_gpu

    @property
    def on_premises_slots(self) -> dict[str, int]:
        """Worker slots by name of on-premises host."""
        hosts = self.on_premises.hosts if self.on_premises is not None else ()
        return {host.name: self._workers_on(host.gpus) for host in hosts}

    @property
    def max_workers(self) -> int:
        """Maximum number of workers, those on premises included."""
        capacity = self.capacity
        # Weighted launches may exceed the maximum by up to one weight.
        above = 0 if capacity.unit == "instances" else max(capacity.weights.values())
        return (capacity.maximum + above) * self.workers_per_slot + sum(self.on_premises_slots.values())

    @property
    def max_slots(self) -> int:
        """Maximum number of workers of one instance or host."""
        return max(*self.slots.values(), *self.on_premises_slots.values(), 1)

    @property
    def workers_per_slot(self) -> int:
        """Number of workers in one unit of ``capacity.target``: on an instance, or on a GPU."""
        return self.slots_per_gpu if self.capacity.unit == "gpus" else max(self.slots.values())

    @property
    def is_scaled(self) -> bool:
        """Whether the number of workers follows the load."""
        return self.scaling is not None and not self.scaling.dry_run

    @property
    def desired_release(self) -> releases.DesiredRelease | None:
        """The release that the workers run; None if they only report."""
        if self.image is None and not self.command:
            return None
        release = WorkerRelease(self.image or "", tuple(self.command), self.environment, self.secrets, ())
        return releases.DesiredRelease(release, self.workers_per_slot)

    @field_validator("gpus_per_worker")
    @classmethod
    def _divides_each_type(cls, count: int, info: ValidationInfo) -> int:
        capacity: Capacity | None = info.data.get("capacity")
        if count == 1 or capacity is None:
            return count
        if info.data.get("slots_per_gpu", 1) > 1:
            raise ValueError(
                f"is {count}, and slotsPerGpu is {info.data['slots_per_gpu']}; only one of them can "
                "be above 1"
            )
        if not capacity.is_nvidia:
            raise ValueError(f"must be 1 without NVIDIA GPUs, not {count}")
        if capacity.unit == "gpus":
            raise ValueError(f"is {count}, which needs capacity.unit 'instances'; capacity.unit is 'gpus'")
        for kind, gpus in _gpus(capacity).items():
            if gpus % count:
                divisors = [str(n) for n in range(1, 9) if gpus % n == 0]
                raise ValueError(
                    f"must be {alternatives(divisors)}, because {kind} has {gpus} GPUs, not {count}"
                )
        return count

    @field_validator("image")
    @classmethod
    def _container_on_nvidia(cls, image: str | None, info: ValidationInfo) -> str | None:
        capacity: Capacity | None = info.data.get("capacity")
        if image is not None and capacity is not None:
            vendor = catalogue.lookup(capacity.types[0]).family.vendor
            if vendor != "nvidia":
                raise ValueError(f"needs NVIDIA GPUs; a container does not run on accelerators of {vendor!r}")
        return image

    @field_validator("reports_readiness")
    @classmethod
    def _has_a_program(cls, value: bool, info: ValidationInfo) -> bool:
        if value and info.data.get("image") is None and not info.data.get("command"):
            raise ValueError("must be false without an image or a command, not true")
        return value

    @field_validator("command")
    @classmethod
    def _fits_a_parameter(cls, command: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        release = WorkerRelease(
            *(info.data.get("image") or "-", command, info.data.get("environment", {})),
            secrets=info.data.get("secrets", {}),
        )
        size = len(releases.dumps(releases.DesiredRelease(release, 9999)).encode()) + releases.MAX_QUEUE_BYTES
        if size > releases.MAX_BYTES:
            raise ValueError(
                "image, command, environment and queue together must have at most "
                f"{releases.MAX_BYTES} bytes (the size of an SSM parameter), not {size}"
            )
        return command

    @field_validator("queue")
    @classmethod
    def _has_a_consumer(cls, queue: AnyQueue | None, info: ValidationInfo) -> AnyQueue | None:
        if queue is None:
            return None
        if info.data.get("image") is None and not info.data.get("command"):
            raise ValueError("needs an image or a command; set one of them")
        for key in ("environment", "secrets"):
            for name in info.data.get(key, {}):
                if name.startswith("SPOT_WORK_"):
                    raise ValueError(f"has {name}, which is also in {key}; set it in one of them")
        return queue

    @field_validator("on_premises")
    @classmethod
    def _can_run_on_premises(cls, hosts: OnPremises | None, info: ValidationInfo) -> OnPremises | None:
        if hosts is not None and info.data.get("image") is None and not info.data.get("command"):
            raise ValueError("needs an image or a command; set one of them")
        if hosts is not None and info.data.get("policy_arns"):
            raise ValueError(
                "works with permissions, which the hosts' policies have; replace policyArns by permissions"
            )
        if hosts is not None and info.data.get("datasets"):
            raise ValueError("cannot have datasets, which are EBS volumes; remove one of the two")
        count = info.data.get("gpus_per_worker", 1)
        for host in hosts.hosts if hosts is not None else ():
            if host.gpus % count:
                raise ValueError(
                    f"{host.name!r} has {host.gpus} GPUs, which is not a multiple of gpusPerWorker "
                    f"({count}); change one of them"
                )
        in_containers, queue = info.data.get("image") is not None, info.data.get("queue")
        if hosts is not None and in_containers and queue is not None and not queue.has_secret:
            titles = " or ".join(model.title for model in MODELS if model.has_secret)
            raise ValueError(
                f"needs a queue of {titles}, or a command without an image: on premises a container "
                f"has no credentials for a queue of {queue.title}"
            )
        return hosts

    @field_validator("http")
    @classmethod
    def _can_serve(cls, http: Http | None, info: ValidationInfo) -> Http | None:
        if http is None:
            return None
        if info.data.get("runs_on") == "kubernetes":
            raise ValueError(
                "works on instances only; in a cluster with runsOn 'kubernetes' use Gateway API or KServe"
            )
        if info.data.get("image") is None and not info.data.get("command"):
            raise ValueError("needs an image or a command; set one of them")
        if info.data.get("reports_readiness"):
            raise ValueError(
                "is set together with reportsReadiness, but http has its own readiness "
                f"({http.readiness!r}); remove reportsReadiness"
            )
        capacity: Capacity | None = info.data.get("capacity")
        if capacity is not None and not capacity.is_managed:
            raise ValueError("needs fleetType 'maintain', not 'request'")
        on_premises: OnPremises | None = info.data.get("on_premises")
        for host in on_premises.hosts if on_premises is not None else ():
            if host.address is None:
                raise ValueError(f"needs the address of {host.name!r}; set it for each host in onPremises")
        return http

    @field_validator("scaling")
    @classmethod
    def _can_scale(cls, scaling: Scaling | None, info: ValidationInfo) -> Scaling | None:
        capacity: Capacity | None = info.data.get("capacity")
        if scaling is None or capacity is None:
            return scaling
        if info.data.keys() >= {"queue", "http"}:  # an invalid one has its own error
            check_source(scaling, info.data["queue"], info.data["http"])
        if not capacity.is_managed:
            raise ValueError("needs fleetType 'maintain', not 'request'")
        if capacity.unit == "instances" and len({*_gpus(capacity).values()}) > 1:
            remedy = (
                "set capacity.unit to 'gpus'"
                if info.data.get("gpus_per_worker", 1) == 1
                else "change the types"
            )
            raise ValueError(f"needs instances with the same number of GPUs, and they differ; {remedy}")
        if scaling.min < capacity.on_demand_base:
            base = capacity.on_demand_base
            raise ValueError(f"min must be at least capacity.onDemandBase ({base}), not {scaling.min}")
        max_target, required = capacity.max_target, max(1, scaling.highest_floor)
        if max_target < required:
            raise ValueError(
                f"needs a capacity.max that allows a target of {required}, the highest of min and "
                f"floors, not {max_target}"
            )
        return scaling

    @model_validator(mode="after")
    def _has_ports_for_its_workers(self) -> Service:
        if self.http is not None:
            fewest = min(self.slots.values()) if self.capacity.unit == "gpus" else self.max_slots
            check_workers(self.http, self.max_workers, self.max_slots, self.max_workers // max(fewest, 1))
        return self

    @model_validator(mode="after")
    def _supported_by_platform(self) -> Service:
        if self.runs_on != "kubernetes":
            return self
        if self.image is None:
            raise unsupported_error("without an image", "set image")
        if self.slots_per_gpu > 1:
            # Karpenter does not know of shared GPUs and would start too many nodes.
            raise unsupported_error(f"with slotsPerGpu {self.slots_per_gpu}", "set it to 1")
        if self.scaling is not None and self.scaling.source != "queue":
            raise unsupported_error(f"with scaling.source {self.scaling.source!r}", "use 'queue'")
        if self.on_premises is not None:
            raise unsupported_error("with onPremises", "remove it, or run the service on instances")
        check_capacity(self.capacity)
        return self


def check_source(scaling: Scaling, queue: AnyQueue | None, http: Http | None) -> None:
    """Raise ``ValueError`` for a source of load that the service does not have, or that shows too little."""
    if http is not None and scaling.source != "http":
        raise ValueError(
            f"source must be 'http' for a service with http, not {scaling.source!r}, which lacks its requests"
        )
    if scaling.source == "http" and http is None:
        raise ValueError("source 'http' needs http; set http, or another source")
    if scaling.source == "queue" and queue is None:
        raise ValueError("needs a queue, or source 'log'; set one of them")
    if scaling.source == "log" and queue is not None:
        raise ValueError("source must be 'queue', not 'log', for a service with a queue")


def _gpus(capacity: Capacity) -> dict[str, int]:
    """Return the number of GPUs by instance type; 1 for accelerators of another vendor than NVIDIA."""
    return {t: catalogue.lookup(t).accelerators if capacity.is_nvidia else 1 for t in capacity.types}
