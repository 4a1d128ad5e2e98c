"""The engine's side of a Pulumi program: it takes resources, answers lookups, keeps the outputs."""

from __future__ import annotations

import asyncio
import contextlib
import runpy
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final

import pulumi
from google.protobuf import empty_pb2
from pulumi.output import Unknown
from pulumi.runtime import mocks, rpc, run_in_stack, set_all_config
from pulumi.runtime.proto import resource_pb2
from pulumi.runtime.settings import set_root_resource
from pulumi.runtime.sync_await import _ensure_event_loop, _sync_await

from pulumi_declared.errors import UserError
from pulumi_declared.stackfile import StackConfig

STACK_TYPE: Final = "pulumi:pulumi:Stack"


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
        outputs: what dependants see.
        no_effect: inputs that were accepted and do nothing here, each with the reason.
        provider: the provider of its own that it names, empty: the default one.
        protect: whether the program asks the engine to refuse its deletion.
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
        """Whether it only groups others and exists nowhere in AWS."""
        return not self.id


class Monitor(mocks.MockMonitor, ABC):
    """A resource monitor without an engine.

    The SDK calls it on several threads; resources are taken one at a time, and none after the first failure.

    Attributes:
        recorded: the resources so far.
        exports: the stack's outputs, secrets unwrapped.
        secret_exports: names of the outputs that are secrets.
        failure: the first error, if any.
        error: what is raised for what the user can mend.
    """

    error: ClassVar[type[UserError]] = UserError

    def __init__(self) -> None:
        super().__init__(_NoMocks(self))
        self.recorded: list[Resource] = []
        self.exports: dict[str, Any] = {}
        self.secret_exports: frozenset[str] = frozenset()
        self.failure: Exception | None = None
        self._lock = threading.Lock()

    @abstractmethod
    def _register(self, request: Any, urn: str, parent: str, inputs: dict[str, Any]) -> Resource:
        """Return a resource that the program registers; called for one at a time."""

    @abstractmethod
    def _look_up(self, token: str, args: Mapping[str, Any]) -> dict[str, Any]:
        """Answer a lookup by token; called for one at a time."""

    def RegisterResource(self, request: Any) -> Any:  # noqa: N802
        """Take one resource."""
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
        """Refuse: there is nothing to adopt."""
        raise self.error(f'{request.type} "{request.name}": a resource cannot be read here, where nothing is')

    def Invoke(self, request: Any) -> Any:  # noqa: N802
        """Answer one data lookup."""
        try:
            return super().Invoke(request)  # type: ignore[no-untyped-call]
        except Exception as error:
            self.failure = self.failure or error
            raise

    def RegisterResourceOutputs(self, request: Any) -> Any:  # noqa: N802
        """Keep the stack's outputs."""
        # A component's may come later; its type stands behind the stack's.
        if request.urn.split("::")[2] == STACK_TYPE:
            outputs = rpc.deserialize_properties(request.outputs)
            self.secret_exports = frozenset(key for key, value in outputs.items() if rpc.is_rpc_secret(value))
            self.exports = plain(outputs)
        return empty_pb2.Empty()

    def lookup(self, token: str, args: dict[str, Any]) -> dict[str, Any]:
        """Answer a lookup by token."""
        with self._lock:
            return self._look_up(token, plain(args))


class _NoMocks(mocks.Mocks):
    """Satisfies the base class; the monitor routes lookups itself."""

    def __init__(self, monitor: Monitor) -> None:
        self._monitor = monitor

    def call(self, args: mocks.MockCallArgs) -> Any:
        """Answer a lookup."""
        return self._monitor.lookup(args.token, args.args)

    def new_resource(self, args: mocks.MockResourceArgs) -> tuple[str | None, dict[Any, Any]]:
        """Never reached: the monitor registers resources itself."""
        raise NotImplementedError(args.typ)


def run(monitor: Monitor, config: StackConfig, *, preview: bool = False) -> None:
    """Run the program of ``config`` with a monitor; in a ``preview`` what it does not give is unknown.

    The Pulumi runtime's state is global: one program in a process, in which the monitor stays.

    Raises:
        UserError: the program cannot be run, or refuses what it is given.
    """
    folder = config.program if config.program.is_dir() else config.program.parent
    if not config.program.exists():
        raise monitor.error(f"the program {config.program} does not exist")
    _ensure_event_loop()  # type: ignore[no-untyped-call]
    mocks.set_mocks(monitor.mocks, config.project, config.stack, preview=preview, monitor=monitor)
    set_root_resource(None)  # type: ignore[arg-type]  # the program's own stack replaces the one of set_mocks
    set_all_config(config.encoded())
    try:
        with contextlib.chdir(folder):
            _complete(config.program)
    except Exception as error:
        raise _first(error, monitor) from error


def _complete(program: Path) -> None:
    def body() -> None:
        runpy.run_path(str(program), run_name="__main__")

    asyncio.get_event_loop().run_until_complete(run_in_stack(body))


def _first(error: Exception, monitor: Monitor) -> Exception:
    """Return the first thing that went wrong, not what it set off."""
    if monitor.failure is not None:
        return monitor.failure
    return monitor.error(str(error)) if isinstance(error, pulumi.RunError) else error


def plain(value: Any) -> Any:
    """Return ``value`` without secret wrappers at any depth; what is unknown as ``rpc.UNKNOWN``."""
    value = rpc.unwrap_rpc_secret(value)
    if isinstance(value, Unknown):
        return rpc.UNKNOWN
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, pulumi.Output):
        raise UserError("an unresolved output reached the monitor")
    return value
