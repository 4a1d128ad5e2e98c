"""A stack before its deployment: its settings and the resources that the program declares."""

from __future__ import annotations

import multiprocessing
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from gpu_spot.declared.listing import Declared, declared
from gpu_spot.declared.stackfile import StackConfig, load
from gpu_spot.errors import UserError
from infra.schema import Capacity, Service, Settings, Training
from infra.schema.jobs.builder import builders
from infra.schema.jobs.experiments import experiments
from infra.settings import SettingsError, load_settings

_PROFILE_KEY: Final = "aws:profile"
_ACCOUNT: Final = "123456789012"
_IMAGE: Final = "ami-0123456789abcdef0"
_CLUSTER_GROUP: Final = "sg-00000000"
_CALLER_VPC_ID: Final = "vpc-0ca11e45"
"""VPC of the security groups that may call brokers."""
_IDS: Final = {
    "aws:efs/fileSystem:FileSystem": "fs-0a1b2c3d",
    "aws:efs/accessPoint:AccessPoint": "fsap-0a1b2c3d",
}
"""Resource ids whose format the program checks."""


@dataclass(frozen=True, slots=True)
class Stack:
    """A stack's name, settings and resources.

    Attributes:
        settings: without the entries on Kubernetes.
        kubernetes: with them, and without the entries on instances.
        keys: the stack file's key of each group, such as ``services[0]``.
        profile: the AWS profile of the stack file, if any.
    """

    name: str
    settings: Settings
    declared: Sequence[Declared]
    profile: str | None = None
    kubernetes: Settings | None = None
    keys: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls, name: str, settings: Settings, declared: Sequence[Declared], profile: str | None = None
    ) -> Stack:
        """Return the stack of a whole stack file."""
        entries = settings.on_instances, settings.on_kubernetes
        return cls(name, entries[0], declared, profile, entries[1], dict(_keys(settings)))

    @property
    def capacities(self) -> dict[str, Capacity]:
        """Capacity by group, on instances and on Kubernetes, there with all nodes of a job."""
        jobs = () if self.kubernetes is None else map(with_all_nodes, self.kubernetes.jobs)
        on_kubernetes = {entry.name: entry.capacity for entry in (*self.services, *jobs)}
        return {**self.settings.capacities, **on_kubernetes}

    @property
    def services(self) -> tuple[Service, ...]:
        """The services, on instances and on Kubernetes."""
        return (*self.settings.services, *(() if self.kubernetes is None else self.kubernetes.services))

    def key(self, group: str, key: str) -> str:
        """Return the stack file's path of a key of a group, such as ``services[0].capacity.max``."""
        return f"{self.keys.get(group, group)}.{key}"

    @property
    def region(self) -> str:
        """The AWS region."""
        return self.settings.region

    @property
    def zones(self) -> tuple[str, ...]:
        """The Availability Zones, by their names in this account."""
        return self.settings.network.zones

    def has(self, type_: str) -> bool:
        """Return whether the program declares a resource of a type."""
        return any(resource.type == type_ for resource in self.declared)

    def of_type(self, type_: str) -> Iterator[Mapping[str, Any]]:
        """Yield the inputs of the resources of a type."""
        return (resource.inputs for resource in self.declared if resource.type == type_)

    @property
    def proxies(self) -> Counter[str]:
        """Number of proxies of HTTP services by instance type."""
        counts = Counter[str]()
        for service in self.settings.services:
            if service.http is not None:
                counts[service.http.proxies.instance_type] += service.http.proxies.count
        return counts


def read(folder: Path, name: str) -> Stack:
    """Read a stack file, and list the program's resources in a subprocess.

    The subprocess is necessary because the SDK's mocks stay set in the process that runs the program.

    Raises:
        UserError: the file is invalid, or the program rejects it.
    """
    config = load(folder, name)
    settings_of(config)
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(declare, config).result()


def with_all_nodes(job: Training) -> Training:
    """Return a job with the capacity of all its nodes, which on Kubernetes ``capacity`` does not count."""
    times = job.nodes.max if job.runs_on == "kubernetes" else 1
    sizes = {"target": times * job.capacity.target, "max": times * job.capacity.maximum}
    return job.model_copy(update={"capacity": job.capacity.model_copy(update=sizes)})


def settings_of(config: StackConfig) -> Settings:
    """Return the settings of a stack file. Raises ``UserError`` if they are invalid."""
    try:
        return load_settings(config.values)
    except SettingsError as error:
        raise UserError(str(error)) from None


def declare(config: StackConfig) -> Stack:
    """Run the program with a stack file's settings; in a separate process, without calls to AWS."""
    settings = settings_of(config)
    resources = declared(config, _lookups(settings), _IDS)
    return Stack.of(settings.stack_name or config.stack, settings, resources, config.values.get(_PROFILE_KEY))


def _keys(settings: Settings) -> Iterator[tuple[str, str]]:
    """Yield each group's name with the key of its entry; an entry with a matrix or a dataset has several."""
    yield from ((service.name, f"services[{index}]") for index, service in enumerate(settings.services))
    yield from ((host.name, f"sharedHosts[{index}]") for index, host in enumerate(settings.shared_hosts))
    for index, entry in enumerate(settings.training):
        jobs = experiments(entry)
        for name in (*(job.name for job in jobs), *(builder.entry.name for builder in builders(jobs))):
            yield name, f"training[{index}]"


def _lookups(settings: Settings) -> dict[str, Callable[[Mapping[str, Any]], Mapping[str, Any]]]:
    """Return the responses of AWS to the program's lookups, consistent with the stack file."""
    from botocore.session import get_session  # only here: most commands do not call AWS

    network = settings.network
    zones = {subnet: zone for zone, subnet in network.subnets.items()}
    in_network = set(network.security_groups)
    region = settings.region
    return {
        "aws:index/getCallerIdentity:getCallerIdentity": lambda _: {"accountId": _ACCOUNT},
        "aws:index/getPartition:getPartition": lambda _: {
            "partition": get_session().get_partition_for_region(region)
        },
        "aws:ec2/getVpc:getVpc": lambda _: {"enableDnsSupport": True, "enableDnsHostnames": True},
        "aws:ec2/getSubnet:getSubnet": lambda arguments: {
            "vpcId": network.vpc_id,
            "availabilityZone": zones[arguments["id"]],
            "mapPublicIpOnLaunch": False,
        },
        "aws:ec2/getSecurityGroup:getSecurityGroup": lambda arguments: {
            "vpcId": network.vpc_id if arguments["id"] in in_network else _CALLER_VPC_ID
        },
        "aws:ec2/getInstances:getInstances": lambda _: {"ids": [], "publicIps": []},
        "aws:resourcegroupstaggingapi/getResources:getResources": lambda _: {"resourceTagMappingLists": []},
        "aws:ec2/getVpcEndpointService:getVpcEndpointService": lambda arguments: {
            "serviceName": next(
                name
                for name in arguments["filters"][0]["values"]
                if name.startswith(f"com.amazonaws.{region}.")
            ),
            "availabilityZones": list(network.zones),
        },
        "aws:ebs/getSnapshot:getSnapshot": lambda _: {
            "state": "completed",
            "encrypted": True,
            "storageTier": "standard",
            "volumeSize": 1,
        },
        "aws:ssm/getParameter:getParameter": lambda _: {"value": _IMAGE, "insecureValue": _IMAGE},
        "aws:eks/getCluster:getCluster": lambda _: {
            "endpoint": "https://cluster.example.com",
            "certificateAuthorities": [{"data": ""}],
            "vpcConfig": {"clusterSecurityGroupId": _CLUSTER_GROUP},
        },
        "aws:eks/getAddonVersion:getAddonVersion": lambda _: {"version": "v1.0.0-eksbuild.1"},
        "aws:secretsmanager/getRandomPassword:getRandomPassword": lambda _: {"randomPassword": "drawn"},
    }
