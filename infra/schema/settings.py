"""The settings of a stack: all keys of a stack file, and the checks that involve several of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Final

from pydantic import Field, ValidationInfo, field_validator

from contracts import limits, names
from contracts.agent.names import TAG_JOB
from infra.schema import entry_warnings
from infra.schema.base import (
    Model,
    Region,
    Retention,
    StackName,
    TagKey,
    TagValue,
    check_region,
    check_unique,
)
from infra.schema.capacity import Capacity
from infra.schema.cluster.kubernetes import Kubernetes, check_network
from infra.schema.cross_entry_checks import (
    access_points,
    check_blocks,
    check_brokers,
    check_checkpoints,
    check_http,
    check_names_of_hosts,
    check_names_of_jobs,
    check_on_premises,
    check_public_addresses,
    check_quota,
    check_requirements,
    check_zones_of_nodes,
)
from infra.schema.jobs.builder import Builder, builders
from infra.schema.jobs.experiments import experiments
from infra.schema.jobs.training import Training
from infra.schema.network import Network
from infra.schema.operations import Identity, Monitoring, Storage
from infra.schema.services.bursts import wait_warnings
from infra.schema.services.service import Service
from infra.schema.shared_host import SharedHost
from infra.schema.tensorboard import TensorBoard
from infra.schema.work import RunsOn, Work

_STACK_TAGS: Final = (names.TAG_STACK, names.TAG_GROUP, names.TAG_GROUP_ROLE, TAG_JOB, "Name")
_TAGS: Final = 50 - len(_STACK_TAGS)
"""Tags that a stack file may set: AWS allows 50, and a job's instances have these of the stack.

Source: EC2 user guide, "Tag restrictions".
"""
_KARPENTERS_TAGS: Final = 3
"""More on nodes: six of Karpenter's (``cluster_statements.karpenter``), without group role, job and name."""


class Settings(Model):
    """All keys of a stack file below ``gpu-spot:``, and the region."""

    region: Region
    """AWS Region."""
    stack_name: StackName | None = None
    """Name in AWS, in place of the stack's: a renamed stack keeps its old one here and in the pattern of
    ``pulumi:autonaming``."""
    network: Network
    """The VPC."""
    services: tuple[Service, ...] = ()
    """GPU workers that serve requests."""
    storage: Storage = Field(default_factory=Storage)
    """Storage that outlives instances."""
    monitoring: Monitoring = Field(default_factory=Monitoring)
    """Alarms and the budget."""
    identity: Identity = Field(default_factory=Identity)
    """The permissions boundary, and the roles for previews and deployments."""
    training: tuple[Training, ...] = ()
    """Training jobs."""
    shared_hosts: tuple[SharedHost, ...] = ()
    """Instances that are divided between tenants."""
    tensorboard: TensorBoard | None = None
    """TensorBoard for all jobs."""
    kubernetes: Kubernetes | None = None
    """The EKS cluster of entries with ``runsOn: kubernetes``."""
    protect: bool = False
    """Whether Pulumi protects resources that hold data from deletion."""
    kms_key_arn: limits.KmsKeyArn | None = None
    """ARN of a customer managed KMS key that encrypts everything that the stack stores. Its key policy is not
    changed. Default: AWS's own keys."""
    tags: dict[TagKey, TagValue] = Field(default_factory=dict)
    """Additional tags of all resources, instances and volumes."""
    log_retention_days: Retention = 30
    """Days that the log groups of the Lambda functions retain their events."""

    @field_validator("kms_key_arn", "stack_name", mode="before")
    @classmethod
    def _none_is_empty(cls, text: object) -> object:
        return None if text == "" else text  # the project file needs a default, which cannot be null

    _of_the_region = field_validator("kms_key_arn")(check_region)

    @field_validator("tags")
    @classmethod
    def _tags_not_reserved(cls, tags: dict[str, str], info: ValidationInfo) -> dict[str, str]:
        # IAM's keys are not case-sensitive (IAM user guide, "Tags for IAM resources").
        check_unique([key.lower() for key in tags], "tags")
        for key in tags:
            if key.lower() == "name" or key.lower().startswith(("aws:", "gpu-spot:")):
                raise ValueError(
                    f"has the tag {key!r}, which is reserved; use keys except Name, aws:* and gpu-spot:*"
                )
        if len(tags) > (limit := _TAGS - (_KARPENTERS_TAGS if info.data.get("kubernetes") else 0)):
            raise ValueError(
                f"must have at most {limit} tags (of AWS's 50 the stack uses the rest), not {len(tags)}"
            )
        return tags

    @field_validator("services")
    @classmethod
    def _unique_names(cls, services: tuple[Service, ...], info: ValidationInfo) -> tuple[Service, ...]:
        check_unique([service.name for service in services], "services")
        check_brokers(services)
        check_requirements(services, info.data.get("network"))
        check_http(services, info.data.get("network"))
        check_on_premises(services)
        return services

    @field_validator("training")
    @classmethod
    def _valid_across_entries(
        cls, training: tuple[Training, ...], info: ValidationInfo
    ) -> tuple[Training, ...]:
        network: Network | None = info.data.get("network")
        check_names_of_jobs(_jobs(training), info.data.get("services", ()))
        check_requirements(training, network)
        check_blocks(training, network)
        check_zones_of_nodes(training, network)
        check_public_addresses(training, network)
        if "storage" in info.data:
            check_checkpoints(training, info.data["storage"])
        return training

    @field_validator("shared_hosts")
    @classmethod
    def _unique_host_names(
        cls, hosts: tuple[SharedHost, ...], info: ValidationInfo
    ) -> tuple[SharedHost, ...]:
        check_names_of_hosts(hosts, _jobs(info.data.get("training", ())), info.data.get("services", ()))
        return hosts

    @field_validator("tensorboard", "kubernetes", mode="before")
    @classmethod
    def _none_is_an_empty_mapping(cls, value: object) -> object:
        return None if value == {} else value  # as with kms_key_arn

    @field_validator("kubernetes")
    @classmethod
    def _required_by_entries(cls, kubernetes: Kubernetes | None, info: ValidationInfo) -> Kubernetes | None:
        entries = (*info.data.get("services", ()), *info.data.get("training", ()))
        on_kubernetes = [entry.name for entry in entries if entry.runs_on == "kubernetes"]
        if kubernetes is None and on_kubernetes:
            raise ValueError(
                f"is required, because {on_kubernetes[0]!r} runs on it; set cluster, nodeRole and nodeImage"
            )
        network: Network | None = info.data.get("network")
        if network is not None and kubernetes is not None and kubernetes.create is not None:
            check_network(network)
        if kubernetes is not None:
            check_quota(info.data.get("training", ()), kubernetes.quota_gpus)
        return kubernetes

    @field_validator("tensorboard")
    @classmethod
    def _has_files(cls, board: TensorBoard | None, info: ValidationInfo) -> TensorBoard | None:
        if board is None or "storage" not in info.data:
            return board
        points = access_points(info.data["storage"])
        if board.access_point not in points:
            raise ValueError(
                "accessPoint must be one of storage.fileSystem "
                f"({', '.join(map(repr, points)) or 'it has none'}), not {board.access_point!r}"
            )
        return board

    @property
    def on_instances(self) -> Settings:
        """The settings without the entries that run on Kubernetes."""
        return self._with_entries_on("instances")

    @property
    def on_kubernetes(self) -> Settings:
        """The settings without the entries that run on instances."""
        return self._with_entries_on("kubernetes")

    def _with_entries_on(self, platform: RunsOn) -> Settings:
        return self.model_copy(
            update={
                "services": tuple(service for service in self.services if service.runs_on == platform),
                "training": tuple(job for job in self.training if job.runs_on == platform),
            }
        )

    @property
    def jobs(self) -> tuple[Training, ...]:
        """The training jobs, with each experiment of a matrix as a separate entry."""
        return _jobs(self.training)

    @property
    def capacities(self) -> dict[str, Capacity]:
        """Capacity by group: of services, jobs, dataset builders and shared hosts."""
        entries: tuple[Work | SharedHost, ...] = (
            *self.services,
            *self.jobs,
            *(builder.entry for builder in self.builders),
            *self.shared_hosts,
        )
        return {entry.name: entry.capacity for entry in entries}

    @property
    def called_by_functions(self) -> tuple[str, ...]:
        """Services of AWS that functions in the VPC call, if they need interface endpoints of their own.

        Source: Lambda guide, "Enable internet access for VPC-connected Lambda functions": "Connecting a
        function to a public subnet doesn't give it internet access or a public IP address".
        """
        queues = [service.queue for service in self.services if service.queue is not None]
        with_http = any(service.http is not None for service in self.services)
        if self.network.egress != "public" or self.network.endpoints == "interface":
            return ()
        if not with_http and not any(queue.has_secret for queue in queues):
            return ()
        called = {name for queue in queues for name in queue.called_by_functions}
        return tuple(sorted(called | {"ec2"} if with_http else called))

    def zones_of(self, group: str) -> tuple[str, ...]:
        """Return the zones of a group's instances: those of the network, or the one of its nodes."""
        zone = next((job.nodes.zone for job in self.training if job.name == group and job.has_nodes), None)
        return self.network.zones if zone is None else (zone,)

    @property
    def builders(self) -> tuple[Builder, ...]:
        """The builders of the jobs' datasets."""
        return builders(self.jobs)

    @property
    def own_image_parameters(self) -> list[str]:
        """SSM parameters of the account that hold AMI IDs, sorted."""
        images = {image for capacity in self.capacities.values() for image in capacity.images}
        return sorted(image for image in images if image.startswith("/") and not image.startswith("/aws/"))

    def preview_warnings(self, now: datetime) -> Iterator[str]:
        """Yield all warnings of a preview, one line each."""
        yield from self.warnings()
        yield from self.past_deadlines(now)

    def past_deadlines(self, now: datetime) -> Iterator[str]:
        """Yield a warning for each deadline in the past."""
        yield from entry_warnings.deadline_warnings(self.training, now)

    @property
    def source_security_groups(self) -> list[str]:
        """Security groups of ``allowedSources`` of services, sorted, without those of the network."""
        parts = [part for service in self.services for part in (service.queue, service.http)]
        groups = {group for part in parts if part is not None for group in part.source_security_groups}
        return sorted(groups - {*self.network.security_groups})

    def warnings(self) -> Iterator[str]:
        """Yield a warning for each setting that is rarely intended, one line each."""
        if not self.capacities:
            yield "gpu-spot:services: no service, job or shared host: the stack runs nothing"
        yield from entry_warnings.single_pool_warnings("services", self.services, self.network)
        yield from entry_warnings.single_pool_warnings("training", self.training, self.network)
        yield from entry_warnings.single_pool_warnings("sharedHosts", self.shared_hosts, self.network)
        yield from entry_warnings.idle_warnings(self.services)
        yield from entry_warnings.image_warnings(self.training)
        yield from entry_warnings.tenant_warnings(self.shared_hosts)
        yield from entry_warnings.data_warnings(self.training)
        yield from entry_warnings.ignored_key_warnings("services", self.services)
        yield from entry_warnings.ignored_key_warnings("training", self.training)
        yield from entry_warnings.egress_warnings(
            self.network, self.tensorboard, self.services, self.training
        )
        yield from entry_warnings.cluster_warnings(self.network, self.kubernetes)
        yield from wait_warnings(self.services, self.region)


def _jobs(training: Iterable[Training]) -> tuple[Training, ...]:
    return tuple(job for entry in training for job in experiments(entry))
