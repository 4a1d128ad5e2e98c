"""A deployment: its resources, outputs, functions and event bus."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pulumi_on_moto.cluster.clusters import Clusters
from pulumi_on_moto.emulator import AwsClients
from pulumi_on_moto.errors import LocalCloudError
from pulumi_on_moto.program.monitor import Resource
from pulumi_on_moto.running.events import EventBus
from pulumi_on_moto.running.functions import FunctionRuntime


@dataclass(frozen=True, slots=True)
class Deployment:
    """The result of one run of the program.

    Attributes:
        clients: clients of its sandbox.
        project: the project's name.
        stack: the stack's name.
        resources: its resources in order of registration.
        outputs: the stack's exports, secrets unwrapped.
        secret_outputs: names of secret exports.
        functions: the deployed functions.
        bus: the default event bus.
        clusters: the APIs of Kubernetes clusters, by their names in EKS.
    """

    clients: AwsClients
    project: str
    stack: str
    resources: tuple[Resource, ...]
    outputs: Mapping[str, Any]
    secret_outputs: frozenset[str]
    functions: FunctionRuntime
    bus: EventBus
    clusters: Clusters

    @property
    def region(self) -> str:
        """The AWS region."""
        return self.clients.region

    def of_type(self, type_: str) -> tuple[Resource, ...]:
        """Return the resources of a type token."""
        return tuple(resource for resource in self.resources if resource.type == type_)

    def resource(self, type_: str, name: str) -> Resource:
        """Return one resource by type token and logical name; raise ``LocalCloudError`` if there is none."""
        for resource in self.resources:
            if resource.type == type_ and resource.name == name:
                return resource
        raise LocalCloudError(f"the deployment of {self.stack!r} has no {type_} named {name!r}")
