"""The shape of a stack's settings: frozen models that refuse unknown keys and values out of range."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Final

from pydantic import Field, ValidationInfo, field_validator

from contracts import limits, names
from contracts.agent.names import TAG_JOB
from infra.schema.base import Model, Region, Retention, TagKey, TagValue, unique
from infra.schema.capacity import Capacity
from infra.schema.cluster.kubernetes import Kubernetes, RunsOn
from infra.schema.jobs.builder import Builder, builders
from infra.schema.jobs.file_system_data import SLOW, data_on_file_system
from infra.schema.jobs.matrix import experiments
from infra.schema.jobs.training import ON_THE_VOLUME, Training
from infra.schema.network import Network
from infra.schema.operations import Bucket, Deploys, Identity, Monitoring, Previews, Repository, Storage
from infra.schema.services.on_premises import OnPremises
from infra.schema.services.queue import Queue
from infra.schema.services.scaling import Scaling
from infra.schema.services.service import Service
from infra.schema.services.sqs_queue import SqsQueue
from infra.schema.shared_host import SharedHost
from infra.schema.tensorboard import TensorBoard
from infra.schema.work import Dataset, Work

__all__ = (
    "Bucket",
    "Builder",
    "Capacity",
    "Dataset",
    "Deploys",
    "Identity",
    "Kubernetes",
    "Monitoring",
    "Network",
    "OnPremises",
    "Previews",
    "Queue",
    "Repository",
    "Scaling",
    "Service",
    "Settings",
    "SharedHost",
    "SqsQueue",
    "Storage",
    "TensorBoard",
    "Training",
    "Work",
)

_REQUIREMENTS: Final = 4
"""Sets of instance requirements that AWS takes in one group (Auto Scaling's API reference,
``LaunchTemplateOverrides``), and, by experience, in one fleet."""

_TAGS: Final = 50 - len((names.TAG_STACK, names.TAG_GROUP, names.TAG_SIDE, TAG_JOB, "Name"))
"""A resource takes 50 (EC2 user guide, "Tag restrictions"), and a job's instances have these of ours."""


class Settings(Model):
    """Everything that a stack file says under ``gpu-spot:``, and the region."""

    region: Region
    """AWS's."""
    network: Network
    """Where instances are."""
    services: tuple[Service, ...]
    """GPU workers that serve requests."""
    storage: Storage = Field(default_factory=Storage)
    """What outlives instances."""
    monitoring: Monitoring = Field(default_factory=Monitoring)
    """Who hears alarms, and when."""
    identity: Identity = Field(default_factory=Identity)
    """What bounds the roles, who previews, and who deploys."""
    training: tuple[Training, ...] = ()
    """Training jobs, as written; what runs are ``jobs``."""
    shared_hosts: tuple[SharedHost, ...] = ()
    """Machines divided between tenants."""
    tensorboard: TensorBoard | None = None
    """Who shows the curves of all jobs."""
    kubernetes: Kubernetes | None = None
    """The EKS cluster that entries with ``runsOn: kubernetes`` run on."""
    protect: bool = False
    """Whether the engine refuses to delete what holds data, until a person lifts the protection."""
    kms_key_arn: limits.KmsKeyArn | None = None
    """A key of one's own that encrypts all that the stack stores; its policy is its owner's."""
    tags: dict[TagKey, TagValue] = Field(default_factory=dict)
    """For every resource, instance and volume, beside gpu-spot's own."""
    log_retention_days: Retention = 30
    """So long the functions' log groups keep their events."""

    @field_validator("kms_key_arn", mode="before")
    @classmethod
    def _none_is_empty(cls, arn: object) -> object:
        return None if arn == "" else arn  # the project file must have a default, and knows no null

    @field_validator("kms_key_arn")
    @classmethod
    def _key_of_region(cls, arn: str | None, info: ValidationInfo) -> str | None:
        region = info.data.get("region")
        if arn is not None and region is not None and arn.split(":")[3] != region:
            raise ValueError(f"{arn} is a key of another region, allowed: keys of {region}")
        return arn

    @field_validator("tags")
    @classmethod
    def _tags_not_reserved(cls, tags: dict[str, str]) -> dict[str, str]:
        for key in tags:
            if key == "Name" or key.startswith(("aws:", "gpu-spot:")):
                raise ValueError(f"tag {key!r} is reserved, allowed: keys but Name, aws:* and gpu-spot:*")
        if len(tags) > _TAGS:
            raise ValueError(f"{len(tags)} tags, allowed: at most {_TAGS} (AWS takes 50, some are ours)")
        return tags

    @field_validator("services")
    @classmethod
    def _unique_names(cls, services: tuple[Service, ...], info: ValidationInfo) -> tuple[Service, ...]:
        unique([service.name for service in services], "services")
        _check_requirements(services, info.data.get("network"))
        return services

    @field_validator("training")
    @classmethod
    def _names_and_places(cls, training: tuple[Training, ...], info: ValidationInfo) -> tuple[Training, ...]:
        services: tuple[Service, ...] = info.data.get("services", ())
        jobs = _jobs(training)
        names = [service.name for service in services] + [one.name for one in jobs]
        unique(names, "services or training jobs")
        unique(names + [one.group for one in builders(jobs)], "groups, of datasets too,")
        _check_prefixes(jobs, names)
        _check_requirements(training, info.data.get("network"))
        for one in training:
            zones = info.data["network"].zones if "network" in info.data else ()
            if one.capacity_block is not None and zones and one.capacity_block.zone not in zones:
                raise ValueError(
                    f"capacityBlock of {one.name!r} is in {one.capacity_block.zone!r}, "
                    f"allowed: {', '.join(zones)} (network.zones)"
                )
        if "storage" in info.data:
            files = info.data["storage"].file_system
            places = [ON_THE_VOLUME, *(point.name for point in (files.access_points if files else ()))]
            for one in training:
                if one.checkpoints not in places:
                    raise ValueError(
                        f"checkpoints of {one.name!r} are {one.checkpoints!r}, "
                        f"allowed: {', '.join(map(repr, places))}"
                    )
        return training

    @field_validator("shared_hosts")
    @classmethod
    def _names_of_volumes(cls, hosts: tuple[SharedHost, ...], info: ValidationInfo) -> tuple[SharedHost, ...]:
        jobs = _jobs(info.data.get("training", ()))
        groups = [service.name for service in info.data.get("services", ())] + [job.name for job in jobs]
        groups += [one.group for one in builders(jobs)]
        unique(groups + [host.name for host in hosts], "services, training jobs or shared hosts")
        # A host may touch volumes whose names begin with its own.
        others = groups + [host.name for host in hosts]
        for host in hosts:
            if taken := [name for name in others if name.startswith(f"{host.name}-")]:
                raise ValueError(
                    f"{taken[0]!r} beside {host.name!r}, whose tenants' volumes begin so, allowed: "
                    "other names"
                )
        return hosts

    @field_validator("tensorboard", "kubernetes", mode="before")
    @classmethod
    def _none_is_no_key(cls, given: object) -> object:
        return None if given == {} else given  # as with kms_key_arn

    @field_validator("kubernetes")
    @classmethod
    def _has_what_runs_there(cls, given: Kubernetes | None, info: ValidationInfo) -> Kubernetes | None:
        entries = (*info.data.get("services", ()), *info.data.get("training", ()))
        there = [one.name for one in entries if one.runs_on == "kubernetes"]
        if given is None and there:
            raise ValueError(
                f"missing, {there[0]!r} runs there, allowed: with cluster, nodeRole and nodeImage"
            )
        zones = list(info.data["network"].zones) if "network" in info.data else []
        if given is not None and given.own is not None and len(zones) == 1:
            raise ValueError(f"own with one zone ({zones[0]}), allowed: at least two in network (EKS asks)")
        return given

    @field_validator("tensorboard")
    @classmethod
    def _has_files(cls, board: TensorBoard | None, info: ValidationInfo) -> TensorBoard | None:
        if board is None or "storage" not in info.data:
            return board
        files = info.data["storage"].file_system
        points = [point.name for point in (files.access_points if files else ())]
        if board.access_point not in points:
            raise ValueError(
                f"accessPoint {board.access_point!r}, allowed: {', '.join(map(repr, points)) or 'none'} "
                "(of storage.fileSystem)"
            )
        return board

    @property
    def on_instances(self) -> Settings:
        """The same without the entries that run on Kubernetes."""
        return self._of("instances")

    @property
    def on_kubernetes(self) -> Settings:
        """The same without the entries that run on instances."""
        return self._of("kubernetes")

    def _of(self, half: RunsOn) -> Settings:
        return self.model_copy(
            update={
                "services": tuple(one for one in self.services if one.runs_on == half),
                "training": tuple(one for one in self.training if one.runs_on == half),
            }
        )

    @property
    def jobs(self) -> tuple[Training, ...]:
        """What ``training`` asks for, each experiment of a matrix as an entry of its own."""
        return _jobs(self.training)

    @property
    def capacities(self) -> dict[str, Capacity]:
        """The capacity of each group: services, jobs, who prepares datasets, shared hosts."""
        entries: tuple[Work | SharedHost, ...] = (
            *self.services,
            *self.jobs,
            *(one.entry for one in self.builders),
            *self.shared_hosts,
        )
        return {entry.name: entry.capacity for entry in entries}

    @property
    def builders(self) -> tuple[Builder, ...]:
        """Who prepares the jobs' datasets."""
        return builders(self.jobs)

    @property
    def own_image_parameters(self) -> list[str]:
        """The account's own parameters that name images, sorted."""
        images = {image for capacity in self.capacities.values() for image in capacity.images}
        return sorted(image for image in images if image.startswith("/") and not image.startswith("/aws/"))

    def remarks(self, now: datetime) -> Iterator[str]:
        """Yield what a preview says of a stack file that it takes, one line each."""
        yield from self.warnings()
        yield from self.past_deadlines(now)

    def past_deadlines(self, now: datetime) -> Iterator[str]:
        """Yield a warning for each deadline that has passed; a finished job's may, so it is no error."""
        for index, one in enumerate(self.training):
            if one.deadline is not None and one.deadline_at <= now.timestamp():
                yield (
                    f"gpu-spot:training[{index}].deadline: {one.deadline} has passed; unless the job is done "
                    "it goes on as fast as it can"
                )

    @property
    def caller_groups(self) -> list[str]:
        """Security groups of others that may reach brokers, sorted; without the network's own."""
        queues = [service.queue for service in self.services if isinstance(service.queue, Queue)]
        named = {one for queue in queues for one in queue.callers}
        return sorted({one for one in named if one.startswith("sg-")} - {*self.network.security_groups})

    def warnings(self) -> Iterator[str]:
        """Yield what is allowed and rarely meant, one line each."""
        places = [f"services[{index}]" for index in range(len(self.services))]
        places += [f"training[{index}]" for index in range(len(self.training))]
        places += [f"sharedHosts[{index}]" for index in range(len(self.shared_hosts))]
        entries: tuple[Work | SharedHost, ...] = (*self.services, *self.training, *self.shared_hosts)
        for place, entry in zip(places, entries, strict=True):
            capacity = entry.capacity
            if len(capacity.types) * len(self.network.zones) == 1:
                yield (
                    f"gpu-spot:{place}.capacity.instanceTypes: one type in one zone is a single "
                    "capacity pool: when AWS takes it back, all spot instances go at once"
                )
        for index, one in enumerate(self.training):
            aws_own = any(path.startswith("/aws/") for path in one.capacity.images)
            if one.checkpoints != ON_THE_VOLUME and aws_own and one.runs_on == "instances":
                yield (
                    f"gpu-spot:training[{index}].checkpoints: a file system needs amazon-efs-utils in the "
                    "image, and AWS's own is not known to have it: name one that does in capacity.ami"
                )
        for index, host in enumerate(self.shared_hosts):
            for key, says in host.warnings():
                yield f"gpu-spot:sharedHosts[{index}].{key}: {says}"
        for index, one in enumerate(self.training):
            for option, says in data_on_file_system(one):
                yield f"gpu-spot:training[{index}].{option}: {says}: {SLOW}"
        if self.network.cidr is not None and self.network.egress == "none":
            if self.tensorboard is not None:
                yield "gpu-spot:tensorboard: with network.egress 'none' it cannot be installed from PyPI"
            for index in range(len(self.training)):
                yield (
                    f"gpu-spot:training[{index}].repository: with network.egress 'none' it must be reachable "
                    "inside the VPC"
                )


def _jobs(training: Iterable[Training]) -> tuple[Training, ...]:
    return tuple(job for entry in training for job in experiments(entry))


def _check_prefixes(jobs: Iterable[Training], names: Iterable[str]) -> None:
    """Raise ``ValueError`` where another's name could be that of an experiment of a group."""
    for job in jobs:
        taken = [name for name in names if job.shares_group and name.startswith(f"{job.name}-")]
        if taken:
            raise ValueError(
                f"{taken[0]!r} beside {job.name!r}, whose experiments' names begin so, allowed: other names"
            )


def _check_requirements(entries: Sequence[Work], network: Network | None) -> None:
    """Raise ``ValueError`` for more sets of requirements than AWS takes; a fleet has them in each zone."""
    for entry in entries:
        capacity = entry.capacity
        if capacity.instance_requirements is None or network is None:
            continue
        images, zones = len(capacity.images), len(network.zones) if capacity.kind == "spot-fleet" else 1
        if images * zones > _REQUIREMENTS:
            counted = f"{images} image(s) in {zones} zone(s)" if zones > 1 else f"{images} images"
            raise ValueError(
                f"instanceRequirements of {entry.name!r} with {counted} make {images * zones} sets, "
                f"allowed: at most {_REQUIREMENTS} (AWS's limit); list instanceTypes instead"
            )
