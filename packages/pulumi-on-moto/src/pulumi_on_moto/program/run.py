"""Deploy: run a Pulumi program against the local cloud."""

from __future__ import annotations

from pulumi_on_moto.emulator import AwsClients
from pulumi_on_moto.errors import LocalCloudError
from pulumi_on_moto.program import monitor as program_monitor
from pulumi_on_moto.program.provision import Provisioner, name_pattern
from pulumi_on_moto.program.record import Deployment
from pulumi_on_moto.program.stackfile import Stack
from pulumi_on_moto.running.events import EventBus
from pulumi_on_moto.running.functions import FunctionRuntime


def deploy(clients: AwsClients, config: Stack) -> Deployment:
    """Run the program of a stack; its resources then exist in the sandbox.

    The Pulumi runtime's state is global: one program in a process.

    ``clients``: of an open ``sandbox`` in the stack's region.

    Raises:
        LocalCloudError: a resource cannot be created here; the message names it.
    """
    monitor = Provisioner(clients, config.default_tags, name_pattern=name_pattern(config))
    run(monitor, clients, config)
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


def run(monitor: Provisioner, clients: AwsClients, config: Stack) -> None:
    """Run the program of ``config`` with a monitor that creates its resources."""
    if config.region != clients.region:
        raise LocalCloudError(
            f"stack {config.stack!r} is in {config.region!r}, the local cloud in {clients.region!r}"
        )
    program_monitor.run(monitor, config)
