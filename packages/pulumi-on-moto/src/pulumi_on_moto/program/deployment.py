"""Deploy a program against the local cloud; invoke its functions and deliver events."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pulumi_on_moto.cluster.clusters import Clusters
from pulumi_on_moto.emulator import AwsClients
from pulumi_on_moto.errors import LocalCloudError
from pulumi_on_moto.program.monitor import Resource, run
from pulumi_on_moto.program.provision import Provisioner
from pulumi_on_moto.program.stackfile import Stack
from pulumi_on_moto.running.events import EventBus
from pulumi_on_moto.running.functions import FunctionRuntime, Invocation

_NEEDED: Final = ("source", "detail-type", "detail")


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


def deploy(clients: AwsClients, config: Stack) -> Deployment:
    """Run the program of a stack; its resources then exist in the sandbox.

    The Pulumi runtime's state is global: one program in a process.

    ``clients``: of an open ``sandbox`` in the stack's region.

    Raises:
        LocalCloudError: a resource cannot be created here; the message names it.
    """
    monitor = Provisioner(clients, config)
    run(monitor, config)
    functions = FunctionRuntime(clients, monitor.code)
    return Deployment(
        clients=clients,
        project=config.project,
        stack=config.stack,
        resources=tuple(monitor.recorded),
        outputs=monitor.exports,
        secret_outputs=monitor.secret_exports,
        functions=functions,
        bus=EventBus(clients.region, functions),
        clusters=monitor.clusters,
    )


def invoke(deployment: Deployment, function: str, payload: Any = None) -> Invocation:
    """Run a deployed function from its archive and return its result, its log and its error.

    ``function``: its logical name, as the program calls it; ``payload``: a JSON value.

    Raises:
        LocalCloudError: there is no such function.
    """
    resource = deployment.resource("aws:lambda/function:Function", function)
    return deployment.functions.invoke(resource.id, payload)


def deliver(deployment: Deployment, event: Mapping[str, Any]) -> tuple[Invocation, ...]:
    """Deliver an event by the matching deployed rules to queues and functions, which then run.

    Functions run until no event or message waits; messages that they send are delivered, too.

    ``event``: of EventBridge, with ``source``, ``detail-type`` and ``detail``; the rest is filled in. Returns
    the runs of functions in order.

    Raises:
        LocalCloudError: the event lacks a field, or a target is invalid: it does not exist, its policy does
        not allow the rule, or it is neither a queue nor a function.
    """
    for key in _NEEDED:
        if key not in event:
            raise LocalCloudError(f"event: {key!r} is missing; {', '.join(_NEEDED)} are needed")
    envelope = deployment.bus.event(event["detail-type"], event["source"], event["detail"], time.time(), [])
    deployment.bus.publish({**envelope, **event})
    return tuple(deployment.functions.run())


def tick(deployment: Deployment) -> tuple[Invocation, ...]:
    """Fire every scheduled rule once; return the runs of functions, as ``deliver`` does."""
    deployment.bus.tick(time.time())
    return tuple(deployment.functions.run())
