"""The shape of a stack file: its keys, and what of it concerns several of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Final

from pydantic import Field, ValidationInfo, field_validator

from contracts import limits, names
from contracts.agent.names import TAG_JOB
from infra.schema import entry_warnings
from infra.schema.base import Model, Region, Retention, TagKey, TagValue, unique
from infra.schema.between_entries import (
    access_points,
    check_blocks,
    check_checkpoints,
    check_names_of_hosts,
    check_names_of_jobs,
    check_requirements,
)
from infra.schema.capacity import Capacity
from infra.schema.cluster.kubernetes import Kubernetes
from infra.schema.jobs.builder import Builder, builders
from infra.schema.jobs.experiments import experiments
from infra.schema.jobs.training import Training
from infra.schema.network import Network
from infra.schema.operations import Identity, Monitoring, Storage
from infra.schema.services.service import Service
from infra.schema.shared_host import SharedHost
from infra.schema.tensorboard import TensorBoard
from infra.schema.work import RunsOn, Work

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
        check_requirements(services, info.data.get("network"))
        return services

    @field_validator("training")
    @classmethod
    def _names_and_places(cls, training: tuple[Training, ...], info: ValidationInfo) -> tuple[Training, ...]:
        network: Network | None = info.data.get("network")
        check_names_of_jobs(_jobs(training), info.data.get("services", ()))
        check_requirements(training, network)
        check_blocks(training, network)
        if "storage" in info.data:
            check_checkpoints(training, info.data["storage"])
        return training

    @field_validator("shared_hosts")
    @classmethod
    def _names_of_volumes(cls, hosts: tuple[SharedHost, ...], info: ValidationInfo) -> tuple[SharedHost, ...]:
        check_names_of_hosts(hosts, _jobs(info.data.get("training", ())), info.data.get("services", ()))
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
        points = access_points(info.data["storage"])
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
        """Yield a warning for each deadline that has passed."""
        yield from entry_warnings.of_deadlines(self.training, now)

    @property
    def caller_groups(self) -> list[str]:
        """Security groups of others that may reach queues, sorted; without the network's own."""
        queues = [service.queue for service in self.services if service.queue is not None]
        named = {one for queue in queues for one in queue.caller_groups}
        return sorted(named - {*self.network.security_groups})

    def warnings(self) -> Iterator[str]:
        """Yield what is allowed and rarely meant, one line each."""
        yield from entry_warnings.of_pools("services", self.services, self.network)
        yield from entry_warnings.of_pools("training", self.training, self.network)
        yield from entry_warnings.of_pools("sharedHosts", self.shared_hosts, self.network)
        yield from entry_warnings.of_images(self.training)
        yield from entry_warnings.of_tenants(self.shared_hosts)
        yield from entry_warnings.of_data(self.training)
        yield from entry_warnings.of_egress(self.network, self.tensorboard, self.training)


def _jobs(training: Iterable[Training]) -> tuple[Training, ...]:
    return tuple(job for entry in training for job in experiments(entry))
