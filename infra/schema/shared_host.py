"""The shape of ``sharedHosts[]``: one machine divided between tenants."""

from __future__ import annotations

import ipaddress
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
from infra.catalogue import host_shapes
from infra.schema.base import Model, unique
from infra.schema.capacity import Capacity
from infra.schema.work import Dataset, check_names, check_text
from userdata.agent.machine.errors import RefusedError
from userdata.agent.tenants import model as agent
from userdata.agent.tenants.plan import plan

_TIMES_DATASET: Final = 10
_CALLERS: Final = 3
"""Each opens a port of each tenant, and a security group takes 60 rules (VPC user guide, "Quotas")."""
_PART: Final[Matches] = get_args(agent.MigName)[1]


def _gpus(given: object) -> int | tuple[int, ...] | str:
    if isinstance(given, int) and not isinstance(given, bool) and 0 <= given <= agent.MOST_GPUS:
        return given
    if (
        isinstance(given, list | tuple)
        and 0 < len(given) <= agent.MOST_GPUS
        and all(type(gpu) is int and 0 <= gpu < agent.MOST_GPUS for gpu in given)
    ):
        return tuple(given)
    if isinstance(given, str) and _PART.allows(given):
        return given
    raise ValueError(
        f"{given!r}, allowed: 0 to {agent.MOST_GPUS} of them, a list of ids from 0 on, or a MIG profile such "
        "as '1g.5gb'"
    )


_WHOLE: Final = {"type": "integer"}
_GPUS: Final = {"anyOf": [_WHOLE, {"type": "array", "items": _WHOLE}, {"type": "string"}]}
TenantGpus: TypeAlias = Annotated[int | tuple[int, ...] | str, PlainValidator(_gpus), WithJsonSchema(_GPUS)]


class Tenant(Model):
    """What one tenant runs, and what of the host is theirs."""

    name: agent.TenantName
    """Of the tenant; unique on its host."""
    uid: agent.Uid
    """As whom its container runs; unique on its host."""
    cpus: agent.Cpus
    """How many are its own, whatever others do."""
    cpu_mode: agent.CpuMode = "shared"
    """``shared``: it may use what others leave idle, too. ``pinned``: whole cores that nobody else uses."""
    memory_gib: Annotated[agent.MemoryGib, Field(alias="memoryGiB")]
    """GiB of memory."""
    gpus: TenantGpus = 0
    """A number of whole ones, a list of their ids, or one MIG profile such as ``1g.5gb``."""
    container_port: agent.ContainerPort | None = None
    """Where it listens inside; with ``hostPort``, or neither."""
    host_port: agent.HostPort | None = None
    """Where the host listens for it, on its private address."""
    image: limits.ContainerImage
    """Its container, by its digest."""
    data_gib: Annotated[limits.VolumeGib, Field(alias="dataGiB")] = 20
    """GiB of its volume, which outlives the host."""
    dataset_gib: Annotated[limits.VolumeGib | None, Field(alias="datasetGiB")] = None
    """GiB that are read again and again: less than ten times as much memory is warned of."""
    environment: limits.Environment = Field(default_factory=dict)
    """Of its container. No place for secrets: it stands in the list of tenants."""
    command: limits.Arguments = ()
    """The container's arguments."""

    @property
    def declared(self) -> agent.Tenant:
        """The tenant as the host reads it."""
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
        )

    @field_validator("host_port")
    @classmethod
    def _both_ports(cls, port: int | None, info: ValidationInfo) -> int | None:
        inside = info.data.get("container_port", port)
        if (port is None) != (inside is None):
            raise ValueError(f"{port} beside containerPort {inside}, allowed: both or none")
        if port in agent.AGENT_PORTS:
            raise ValueError(f"{port} is the agent's own, allowed: another")
        return port

    @field_validator("gpus")
    @classmethod
    def _each_once(cls, gpus: int | tuple[int, ...] | str) -> int | tuple[int, ...] | str:
        if isinstance(gpus, tuple) and len({*gpus}) < len(gpus):
            raise ValueError(f"{list(gpus)}, allowed: each id once")
        return gpus

    @field_validator("environment")
    @classmethod
    def _names_of_others(cls, environment: dict[str, str]) -> dict[str, str]:
        check_names(environment)
        return environment

    @field_validator("command")
    @classmethod
    def _fits(cls, command: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        check_text(command, info.data.get("environment", {}))
        return command


CallerNetwork: TypeAlias = Annotated[str, Field(pattern=r"^[0-9.]{7,15}/[0-9]{1,2}$")]


class HostCapacity(Capacity):
    """One machine: said at the key itself, before what follows from another value of it."""

    @field_validator("target")
    @classmethod
    def _one(cls, target: int) -> int:
        if target != 1:
            raise ValueError(
                f"{target}, allowed: 1 (the tenants' volumes are on one machine at a time; another machine "
                "is another entry)"
            )
        return target

    @field_validator("fleet_type")
    @classmethod
    def _kept(cls, kind: str) -> str:
        if kind != "maintain":
            raise ValueError(f"{kind!r}, allowed: 'maintain' (a fleet that asks once replaces no host)")
        return kind

    @field_validator("unit")
    @classmethod
    def _machines(cls, unit: str) -> str:
        if unit != "instances":
            raise ValueError(f"{unit!r}, allowed: 'instances' (it is one, whatever GPUs are in it)")
        return unit


class _ShownAsCapacity:
    """Lets the reference have one table for every capacity."""

    @classmethod
    def __get_pydantic_json_schema__(cls, _: object, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return handler(Capacity.__pydantic_core_schema__)


class SharedHost(Model):
    """One machine of several GPUs, divided between tenants, which come and go while it runs."""

    name: limits.Name
    """Of the group; unique in the stack."""
    capacity: Annotated[HostCapacity, _ShownAsCapacity]
    """What it may be: one instance of any of these types, each of which the tenants must fit."""
    callers: Annotated[tuple[CallerNetwork, ...], Field(max_length=_CALLERS)] = ()
    """Private networks that reach the tenants' ports; without any only Session Manager does."""
    drain_seconds: limits.DrainSeconds = 60
    """So long before an announced end the tenants are told to stop."""
    tenants: Annotated[tuple[Tenant, ...], Field(min_length=1, max_length=agent.MOST_TENANTS)]
    """Who has which part of it. A changed list replaces no instance."""

    @property
    def fallback_capacity(self) -> Capacity:
        """What the fallback starts: what the primary side does."""
        return self.capacity

    @property
    def declared(self) -> tuple[agent.Tenant, ...]:
        """The list of tenants as the host reads it."""
        return tuple(tenant.declared for tenant in self.tenants)

    @property
    def images(self) -> tuple[str, ...]:
        """The tenants' container images, each once."""
        return tuple(dict.fromkeys(tenant.image for tenant in self.tenants))

    @property
    def datasets(self) -> tuple[Dataset, ...]:
        """None: what tenants read lies on their own volumes."""
        return ()

    @field_validator("capacity")
    @classmethod
    def _of_no_warm_pool(cls, capacity: HostCapacity) -> HostCapacity:
        """A warm pool that nobody has asked for is left out: its group takes no order for a zone."""
        if capacity.fallback.warm_instances is None:
            none_warm = capacity.fallback.model_copy(update={"warm_instances": 0})
            capacity = capacity.model_copy(update={"fallback": none_warm})
        if capacity.warm_instances:
            raise ValueError(
                f"{capacity.warm_instances} warm instances, allowed: fallback.warmInstances 0, or left out "
                "(with a warm pool a group takes no order for the zone of the tenants' volumes)"
            )
        for name in capacity.types:
            host_shapes.shape(name)
        return capacity

    @field_validator("callers")
    @classmethod
    def _private(cls, callers: tuple[str, ...]) -> tuple[str, ...]:
        for caller in callers:
            try:
                network = ipaddress.IPv4Network(caller)
            except ValueError as error:
                raise ValueError(f"{caller!r} ({error}), allowed: networks such as 10.0.0.0/8") from None
            if not network.is_private or network.prefixlen < 8:
                raise ValueError(f"{caller}, allowed: private networks (10/8, 172.16/12, 192.168/16)")
        unique([*callers], "callers")
        return callers

    @field_validator("tenants")
    @classmethod
    def _fit_each_type(cls, tenants: tuple[Tenant, ...], info: ValidationInfo) -> tuple[Tenant, ...]:
        capacity: Capacity | None = info.data.get("capacity")
        for name in capacity.types if capacity is not None else ():
            try:
                plan(host_shapes.shape(name), [tenant.declared for tenant in tenants])
            except RefusedError as refused:
                raise ValueError(f"on {name}: {refused}") from None
        return tenants

    def warnings(self) -> Iterator[tuple[str, str]]:
        """Yield what is rarely meant: the key below the host, and what to think of."""
        for index, tenant in enumerate(self.tenants):
            least = _TIMES_DATASET * (tenant.dataset_gib or 0)
            if tenant.memory_gib < least:
                yield (
                    f"tenants[{index}].memoryGiB",
                    f"{tenant.memory_gib} for a dataset of {tenant.dataset_gib} GiB: under {least} GiB "
                    "loaders and the page cache compete, and what is read again comes from the disk",
                )
