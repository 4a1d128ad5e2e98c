"""A resource monitor for a Pulumi program: it records resources and outputs, and answers lookups."""

from __future__ import annotations

import asyncio
import contextlib
import runpy
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pulumi
from google.protobuf import empty_pb2
from pulumi.output import Unknown
from pulumi.runtime import mocks, rpc, run_in_stack, set_all_config
from pulumi.runtime.proto import resource_pb2
from pulumi.runtime.settings import SETTINGS, set_root_resource
from pulumi.runtime.sync_await import _ensure_event_loop, _sync_await

from pulumi_on_moto.errors import LocalCloudError
from pulumi_on_moto.program.stackfile import Stack

STACK_TYPE: Final = "pulumi:pulumi:Stack"
LookUp = Callable[[str, Mapping[str, Any]], dict[str, Any]]
"""Answers a data lookup by its token and arguments."""


@dataclass(frozen=True, slots=True)
class Resource:
    """One resource of the program.

    Attributes:
        urn: Pulumi's name for it; unique.
        type: Pulumi's type token, for example ``aws:sqs/queue:Queue``.
        name: its logical name.
        parent: the URN of its parent, empty for the stack's own children.
        id: its physical id; empty for a component.
        inputs: resolved inputs, camelCase, secrets unwrapped.
        outputs: values for dependent resources.
        no_effect: accepted inputs without effect here, each with the reason.
        provider: its explicit provider, empty: the default one.
        protect: whether it is protected from deletion.
    """

    urn: str
    type: str
    name: str
    parent: str
    id: str
    inputs: Mapping[str, Any]
    outputs: Mapping[str, Any]
    no_effect: Mapping[str, str]
    protect: bool = False
    provider: str = ""

    @property
    def is_component(self) -> bool:
        """Whether it is a component: it groups others and does not exist in AWS."""
        return not self.id


class Monitor(mocks.MockMonitor, ABC):
    """A resource monitor without an engine.

    The SDK calls it on several threads; resources are processed one at a time, and none after a failure.

    Attributes:
        recorded: the recorded resources.
        exports: the stack's outputs, secrets unwrapped.
        secret_exports: names of the outputs that are secrets.
        failure: the first error, if any.
    """

    def __init__(self, look_up: LookUp) -> None:
        self._lock = threading.Lock()
        super().__init__(_Lookups(self._lock, look_up))
        self.recorded: list[Resource] = []
        self.exports: dict[str, Any] = {}
        self.secret_exports: frozenset[str] = frozenset()
        self.failure: Exception | None = None

    @abstractmethod
    def _register(self, request: Any, urn: str, parent: str, inputs: dict[str, Any]) -> Resource:
        """Create and return a registered resource; not called concurrently."""

    def RegisterResource(self, request: Any) -> Any:  # noqa: N802
        """Register one resource."""
        urn = self.make_urn(request.parent, request.type, request.name)
        if request.type == STACK_TYPE:
            return resource_pb2.RegisterResourceResponse(urn=urn)
        _ensure_event_loop()  # type: ignore[no-untyped-call]
        inputs = plain(rpc.deserialize_properties(request.object, keep_unknowns=True))
        parent = "" if request.parent.split("::")[2:3][0] == STACK_TYPE else request.parent
        with self._lock:
            if self.failure is not None:
                raise self.failure
            try:
                if any(resource.urn == urn for resource in self.recorded):
                    raise LocalCloudError(f'{request.type} "{request.name}": this name is declared twice')
                resource = self._register(request, urn, parent, inputs)
            except Exception as error:
                self.failure = error
                raise
            self.recorded.append(resource)
        serialized = _sync_await(rpc.serialize_properties(dict(resource.outputs), {}))
        self.resources[urn] = mocks.MockMonitor.ResourceRegistration(urn, resource.id, dict(resource.outputs))
        return resource_pb2.RegisterResourceResponse(
            urn=urn, id=resource.id, object=serialized, unknown=request.custom and not resource.id
        )

    def ReadResource(self, request: Any) -> Any:  # noqa: N802
        """Raise an error: existing resources cannot be read."""
        raise LocalCloudError(f'{request.type} "{request.name}": existing resources cannot be read here')

    def Invoke(self, request: Any) -> Any:  # noqa: N802
        """Answer a data lookup."""
        try:
            return super().Invoke(request)  # type: ignore[no-untyped-call]
        except Exception as error:
            self.failure = self.failure or error
            raise

    def RegisterResourceOutputs(self, request: Any) -> Any:  # noqa: N802
        """Store the stack's outputs."""
        # Components register outputs, too; their type follows the stack's type in the URN.
        if request.urn.split("::")[2] == STACK_TYPE:
            outputs = rpc.deserialize_properties(request.outputs)
            self.secret_exports = frozenset(key for key, value in outputs.items() if rpc.is_rpc_secret(value))
            self.exports = plain(outputs)
        return empty_pb2.Empty()


class _Lookups(mocks.Mocks):
    """Answers lookups one at a time; the monitor registers resources itself."""

    def __init__(self, lock: threading.Lock, look_up: LookUp) -> None:
        self._lock = lock
        self._look_up = look_up

    def call(self, args: mocks.MockCallArgs) -> Any:
        """Answer a lookup."""
        with self._lock:
            return self._look_up(args.token, plain(args.args))

    def new_resource(self, args: mocks.MockResourceArgs) -> tuple[str | None, dict[Any, Any]]:
        """Never reached: the monitor registers resources itself."""
        raise NotImplementedError(args.typ)


def run(monitor: Monitor, config: Stack) -> None:
    """Run the program of ``config`` with a monitor.

    The Pulumi runtime's state is global: a process runs one program, and the monitor stays set.

    Raises:
        LocalCloudError: the program cannot be run, or rejects its configuration.
    """
    folder = config.program if config.program.is_dir() else config.program.parent
    if not config.program.exists():
        raise LocalCloudError(f"the program {config.program} does not exist")
    _ensure_event_loop()  # type: ignore[no-untyped-call]
    # `set_mocks` keeps the outputs of what ran before; one of an event loop that has ended never completes.
    SETTINGS.outputs = set()
    mocks.set_mocks(monitor.mocks, config.project, config.stack, preview=False, monitor=monitor)
    set_root_resource(None)  # type: ignore[arg-type]  # the program's own stack replaces the one of set_mocks
    set_all_config(config.encoded())

    def body() -> None:
        runpy.run_path(str(config.program), run_name="__main__")

    try:
        with contextlib.chdir(folder):
            asyncio.get_event_loop().run_until_complete(run_in_stack(body))
    except Exception as error:
        if monitor.failure is not None:  # the first error, not its consequences
            raise monitor.failure from error
        if isinstance(error, pulumi.RunError):
            raise LocalCloudError(str(error)) from error
        raise


def plain(value: Any) -> Any:
    """Return ``value`` without secret wrappers at any depth; unknown values as ``rpc.UNKNOWN``."""
    value = rpc.unwrap_rpc_secret(value)
    if isinstance(value, Unknown):
        return rpc.UNKNOWN
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, pulumi.Output):
        raise LocalCloudError("an unresolved output reached the monitor")
    return value
