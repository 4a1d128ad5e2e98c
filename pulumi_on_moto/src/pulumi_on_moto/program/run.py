"""Deploy: run a Pulumi program against the local cloud."""

from __future__ import annotations

import asyncio
import contextlib
import runpy
from pathlib import Path

import pulumi
from pulumi.runtime import mocks, run_in_stack, set_all_config
from pulumi.runtime.settings import set_root_resource
from pulumi.runtime.sync_await import _ensure_event_loop

from pulumi_on_moto.errors import LocalCloudError
from pulumi_on_moto.program.provision import Monitor
from pulumi_on_moto.program.record import Deployment
from pulumi_on_moto.program.stackfile import StackConfig
from pulumi_on_moto.running.events import EventBus
from pulumi_on_moto.running.functions import FunctionRuntime
from pulumi_on_moto.sandbox import AwsClients


def deploy(clients: AwsClients, config: StackConfig) -> Deployment:
    """Run the program of a stack; its resources then exist in the sandbox.

    The Pulumi runtime's state is global: one program in a process.

    Args:
        clients: of a running ``sandbox`` in the stack's region.
        config: the stack, as ``load`` returns it.

    Raises:
        LocalCloudError: a resource cannot be created here; the text names it.
    """
    monitor = Monitor(clients, config.default_tags)
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


def run(monitor: Monitor, clients: AwsClients, config: StackConfig) -> None:
    """Run the program of ``config`` with a monitor that carries out what it registers."""
    if config.region != clients.region:
        raise LocalCloudError(
            f"stack {config.stack!r} is in {config.region!r}, the local cloud in {clients.region!r}"
        )
    _ensure_event_loop()  # type: ignore[no-untyped-call]
    mocks.set_mocks(monitor.mocks, config.project, config.stack, preview=False, monitor=monitor)
    set_root_resource(None)  # type: ignore[arg-type]  # the program's own stack replaces the one of set_mocks
    set_all_config(config.encoded())
    try:
        with contextlib.chdir(_folder(config.program)):
            _complete(config.program)
    except Exception as error:
        raise _told(error, monitor) from error


def _complete(program: Path) -> None:
    def body() -> None:
        runpy.run_path(str(program), run_name="__main__")

    asyncio.get_event_loop().run_until_complete(run_in_stack(body))


def _folder(program: Path) -> Path:
    if not program.exists():
        raise LocalCloudError(f"the program {program} does not exist")
    return program if program.is_dir() else program.parent


def _told(error: Exception, monitor: Monitor) -> Exception:
    """Return the error to show: the first thing that went wrong, not what it set off."""
    if monitor.failure is not None:
        return monitor.failure
    if isinstance(error, pulumi.RunError):
        return LocalCloudError(str(error))
    return error
