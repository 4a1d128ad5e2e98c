"""Settings of ``sharedHosts[]``: instances that are divided between tenants."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Final, TypeAlias, get_args

from pydantic import (
    Field,
    GetJsonSchemaHandler,
    PlainValidator,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
)
from pydantic.json_schema import JsonSchemaValue

from contracts import limits
from contracts.limits import Matches
from contracts.partitions import ECR_IMAGE
from infra.catalogue import host_shapes
from infra.schema.access import ARN_BYTES, MAX_BYTES
from infra.schema.base import Model, check_private_networks
from infra.schema.capacity import Capacity
from infra.schema.work import Dataset, check_names, check_text
from userdata.agent.machine.errors import RefusedError
from userdata.agent.tenants import model as agent
from userdata.agent.tenants.plan import plan

_MEMORY_PER_DATASET: Final = 10
_MAX_SOURCES: Final = 3
"""Each is a rule for each tenant's port. Source: VPC user guide, "Quotas": 60 rules in a security group."""
_MIG_PROFILE: Final[Matches] = get_args(agent.MigName)[1]


def _gpus(value: object) -> int | tuple[int, ...] | str:
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= agent.MAX_GPUS:
        return value
    if (
        isinstance(value, list | tuple)
        and 0 < len(value) <= agent.MAX_GPUS
        and all(type(gpu) is int and 0 <= gpu < agent.MAX_GPUS for gpu in value)
    ):
        return tuple(value)
    if isinstance(value, str) and _MIG_PROFILE.allows(value):
        return value
    raise ValueError(
        f"must be a number from 0 to {agent.MAX_GPUS}, a list of GPU IDs, or a MIG profile "
        f"such as '1g.5gb', not {value!r}"
    )


_WHOLE: Final = {"type": "integer"}
_GPUS: Final = {"anyOf": [_WHOLE, {"type": "array", "items": _WHOLE}, {"type": "string"}]}
TenantGpus: TypeAlias = Annotated[int | tuple[int, ...] | str, PlainValidator(_gpus), WithJsonSchema(_GPUS)]


class Tenant(Model):
    """A tenant: its container and its part of the host."""

    name: agent.TenantName
    """Name of the tenant; unique on its host."""
    uid: agent.Uid
    """User ID that the container runs as; unique on its host."""
    cpus: agent.Cpus
    """Number of CPUs that are guaranteed to the tenant."""
    cpu_mode: agent.CpuMode = "shared"
    """``shared``: the tenant may also use idle CPUs of other tenants. ``capped``: it never uses more than its
    own number. ``pinned``: it has whole cores of its own."""
    memory_gib: Annotated[agent.MemoryGib, Field(alias="memoryGiB")]
    """Memory in GiB."""
    gpus: TenantGpus = 0
    """GPUs: a number of whole GPUs, a list of GPU IDs, or one MIG profile such as ``1g.5gb``."""
    container_port: agent.ContainerPort | None = None
    """Port that the container listens on. Requires ``hostPort``."""
    host_port: agent.HostPort | None = None
    """Port of the host's private address that is forwarded to ``containerPort``."""
    image: limits.ContainerImage
    """Container image, with its digest."""
    data_gib: Annotated[limits.VolumeGib, Field(alias="dataGiB")] = 20
    """Size in GiB of the tenant's volume, which outlives the host; ``/tmp`` is on it, too."""
    dataset_gib: Annotated[limits.VolumeGib | None, Field(alias="datasetGiB")] = None
    """Size in GiB of the data that the tenant reads repeatedly. A preview warns if ``memoryGiB`` is less than
    ten times as much."""
    environment: limits.Environment = Field(default_factory=dict)
    """Environment variables of the container. Not for secrets: the values are readable in the list of
    tenants."""
    secret: limits.SecretName | None = None
    """Name of a Secrets Manager secret with more environment variables, as a JSON object of texts. It is read
    at each start of the container."""
    registry_secret: limits.SecretName | None = None
    """Name of the Secrets Manager secret for the image's registry, with the JSON value ``{"username": …,
    "password": …}``. Not for ECR, which the host's role may read."""
    command: limits.Arguments = ()
    """Arguments of the container."""

    @property
    def declared(self) -> agent.Tenant:
        """The tenant in the format of the node agent."""
        return agent.Tenant(
            name=self.name,
            uid=self.uid,
            cpus=self.cpus,
            memory_gib=self.memory_gib,
            image=self.image,
            cpu_mode=self.cpu_mode,
            gpus=self.gpus if isinstance(self.gpus, int) else 0,
            gpu_ids=self.gpus if isinstance(self.gpus, tuple) else (),
            mig=self.gpus if isinstance(self.gpus, str) else None,
            host_port=self.host_port,
            container_port=self.container_port,
            data_gib=self.data_gib,
            command=self.command,
            environment=self.environment,
            secret=self.secret,
            registry_secret=self.registry_secret,
        )

    @property
    def secrets(self) -> tuple[str, ...]:
        """Names of its secrets."""
        return tuple(name for name in (self.secret, self.registry_secret) if name is not None)

    @field_validator("host_port")
    @classmethod
    def _both_ports(cls, port: int | None, info: ValidationInfo) -> int | None:
        container_port = info.data.get("container_port", port)
        if (port is None) != (container_port is None):
            raise ValueError(
                f"is {port or 'missing'} and containerPort {container_port or 'missing'}; set both or neither"
            )
        if port in agent.AGENT_PORTS:
            raise ValueError(f"is {port}, which the node agent uses; choose another port")
        return port

    @field_validator("gpus")
    @classmethod
    def _each_once(cls, gpus: int | tuple[int, ...] | str) -> int | tuple[int, ...] | str:
        if isinstance(gpus, tuple) and len({*gpus}) < len(gpus):
            raise ValueError(f"is {list(gpus)}; list each GPU ID once")
        return gpus

    @field_validator("registry_secret")
    @classmethod
    def _not_of_ecr(cls, secret: str | None, info: ValidationInfo) -> str | None:
        image = info.data.get("image", "")
        if secret is not None and ECR_IMAGE.match(image):
            raise ValueError(f"is {secret!r}, but {image!r} is in ECR, which needs none; remove it")
        return secret

    @field_validator("environment")
    @classmethod
    def _no_reserved_names(cls, environment: dict[str, str]) -> dict[str, str]:
        check_names(environment)
        return environment

    @field_validator("command")
    @classmethod
    def _fits(cls, command: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        check_text(command, info.data.get("environment", {}))
        return command


SourceNetwork: TypeAlias = Annotated[str, Field(pattern=r"^[0-9.]{7,15}/[0-9]{1,2}$")]


class HostCapacity(Capacity):
    """Capacity of a shared host: one managed instance. Errors name the key itself."""

    @field_validator("target")
    @classmethod
    def _single_instance(cls, target: int) -> int:
        if target != 1:
            raise ValueError(
                f"must be 1, not {target}: the tenants' volumes are on one host at a time; add an "
                "entry for another host"
            )
        return target

    @field_validator("fleet_type")
    @classmethod
    def _is_managed(cls, fleet_type: str) -> str:
        if fleet_type != "maintain":
            raise ValueError(f"must be 'maintain', not {fleet_type!r}, which does not replace instances")
        return fleet_type

    @field_validator("unit")
    @classmethod
    def _counts_instances(cls, unit: str) -> str:
        if unit != "instances":
            raise ValueError(f"must be 'instances', not {unit!r}")
        return unit


class _ShownAsCapacity:
    """Makes the JSON Schema of a host's capacity the same as of every other capacity."""

    @classmethod
    def __get_pydantic_json_schema__(cls, _: object, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return handler(Capacity.__pydantic_core_schema__)


class SharedHost(Model):
    """An instance with several GPUs that is divided between tenants.

    The list of tenants may change while the instance runs.
    """

    name: limits.Name
    """Name of the host and its group; unique in the stack."""
    capacity: Annotated[HostCapacity, _ShownAsCapacity]
    """Capacity of the group: one instance. The tenants must fit on every one of its types."""
    allowed_sources: Annotated[tuple[SourceNetwork, ...], Field(max_length=_MAX_SOURCES)] = ()
    """CIDR blocks of private networks that may connect to the tenants' ports. Default: none, which leaves
    Session Manager."""
    drain_seconds: limits.DrainSeconds = 60
    """Seconds before the instance's termination at which the tenants' containers receive SIGTERM."""
    tenants: Annotated[tuple[Tenant, ...], Field(min_length=1, max_length=agent.MAX_TENANTS)]
    """Tenants. A change of the list does not replace the instance, but one of the names of their secrets
    changes its permissions."""

    @property
    def fallback_capacity(self) -> Capacity:
        """Capacity of the fallback group: the same as that of the primary group."""
        return self.capacity

    @property
    def declared(self) -> tuple[agent.Tenant, ...]:
        """The tenants in the format of the node agent."""
        return tuple(tenant.declared for tenant in self.tenants)

    @property
    def images(self) -> tuple[str, ...]:
        """The tenants' container images, without duplicates."""
        return tuple(dict.fromkeys(tenant.image for tenant in self.tenants))

    @property
    def secrets(self) -> tuple[str, ...]:
        """Names of the tenants' secrets, without duplicates."""
        return tuple(dict.fromkeys(name for tenant in self.tenants for name in tenant.secrets))

    @property
    def datasets(self) -> tuple[Dataset, ...]:
        """None: tenants have their data on their own volumes."""
        return ()

    @field_validator("capacity")
    @classmethod
    def _no_warm_pool(cls, capacity: HostCapacity) -> HostCapacity:
        """A group with a warm pool cannot launch in a given zone."""
        if capacity.warm_instances:
            raise ValueError(
                f"has {capacity.warm_instances} warm instances; set fallback.warmInstances to 0 or "
                "remove it, because a warm pool cannot launch in the zone of the tenants' volumes"
            )
        for name in capacity.types:
            host_shapes.shape(name)
        return capacity

    _private_networks = field_validator("allowed_sources")(check_private_networks)

    @field_validator("tenants")
    @classmethod
    def _fit_each_type(cls, tenants: tuple[Tenant, ...], info: ValidationInfo) -> tuple[Tenant, ...]:
        capacity: Capacity | None = info.data.get("capacity")
        for name in capacity.types if capacity is not None else ():
            try:
                plan(host_shapes.shape(name), [tenant.declared for tenant in tenants])
            except RefusedError as error:
                raise ValueError(f"on {name}: {error}") from None
        return tenants

    @field_validator("tenants")
    @classmethod
    def _secrets_fit_role(cls, tenants: tuple[Tenant, ...]) -> tuple[Tenant, ...]:
        secrets = {name for tenant in tenants for name in tenant.secrets}
        size = sum(ARN_BYTES + len(name) for name in secrets)
        if size > MAX_BYTES:
            raise ValueError(
                f"{len(secrets)} secrets take {size} characters of the role's policies, which have "
                f"room for {MAX_BYTES}; use shorter names or fewer secrets"
            )
        return tenants

    def warnings(self) -> Iterator[tuple[str, str]]:
        """Yield the key and the text of each warning."""
        for index, tenant in enumerate(self.tenants):
            recommended_gib = _MEMORY_PER_DATASET * (tenant.dataset_gib or 0)
            if tenant.memory_gib < recommended_gib:
                yield (
                    f"tenants[{index}].memoryGiB",
                    f"{tenant.memory_gib} for a dataset of {tenant.dataset_gib} GiB: below "
                    f"{recommended_gib} GiB "
                    "data loaders displace the page cache, and repeated reads go to the disk",
                )
