"""List the resources that a program declares, as in its first preview: nothing is created or called."""

from __future__ import annotations

import asyncio
import contextlib
import runpy
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import pulumi
from google.protobuf import empty_pb2
from pulumi.output import Unknown
from pulumi.runtime import mocks, rpc, run_in_stack, set_all_config
from pulumi.runtime.proto import resource_pb2
from pulumi.runtime.settings import SETTINGS, set_root_resource
from pulumi.runtime.sync_await import _ensure_event_loop, _sync_await

from gpu_spot.declared.stackfile import StackConfig
from gpu_spot.errors import UserError

_STACK_TYPE: Final = "pulumi:pulumi:Stack"

Lookup: TypeAlias = Callable[[Mapping[str, Any]], Mapping[str, Any]]
"""Answers a lookup (``aws.get_…``) from its arguments."""


@dataclass(frozen=True, slots=True)
class Declared:
    """A declared resource: Pulumi type token, logical name, inputs in camelCase, secrets unwrapped."""

    type: str
    name: str
    inputs: Mapping[str, Any]


def declared(
    config: StackConfig, lookups: Mapping[str, Lookup], ids: Mapping[str, str]
) -> tuple[Declared, ...]:
    """Run the program of a stack once and return its resources in order, without components.

    Each has a generated id, name and ARN; other outputs of AWS are unknown, as in a preview.
    A process lists one program: Pulumi's runtime is global to it.

    Args:
        config: the stack, as ``load`` returns it.
        lookups: answers to the program's lookups, by token.
        ids: ids by resource type, if their form matters to the program.

    Raises:
        UserError: the program cannot be run or rejects its configuration, or a lookup has no answer.
    """
    if not config.program.exists():
        raise UserError(f"the program {config.program} does not exist")
    monitor = _Monitor(lookups, ids)
    _ensure_event_loop()  # type: ignore[no-untyped-call]
    # `set_mocks` keeps the outputs of what ran before; one of an event loop that has ended never completes.
    SETTINGS.outputs = set()
    mocks.set_mocks(monitor.mocks, config.project, config.stack, preview=True, monitor=monitor)
    set_root_resource(None)  # type: ignore[arg-type]  # the program's own stack replaces the one of set_mocks
    set_all_config(config.encoded())
    program = config.program

    def body() -> None:
        runpy.run_path(str(program), run_name="__main__")

    try:
        with contextlib.chdir(program if program.is_dir() else program.parent):
            asyncio.get_event_loop().run_until_complete(run_in_stack(body))
    except Exception as error:
        # The first error, not its consequences.
        if monitor.failure is None and isinstance(error, pulumi.RunError):
            raise UserError(str(error)) from error
        raise (monitor.failure or error) from error
    return tuple(monitor.recorded)


class _Monitor(mocks.MockMonitor):
    """A resource monitor without an engine; the SDK calls it on several threads."""

    def __init__(self, lookups: Mapping[str, Lookup], ids: Mapping[str, str]) -> None:
        super().__init__(_Lookups(lookups))
        self.recorded: list[Declared] = []
        self.failure: Exception | None = None
        self._ids = ids
        self._lock = threading.Lock()

    def RegisterResource(self, request: Any) -> Any:  # noqa: N802
        """Record one resource."""
        urn = self.make_urn(request.parent, request.type, request.name)
        if request.type == _STACK_TYPE:
            return resource_pb2.RegisterResourceResponse(urn=urn)
        _ensure_event_loop()  # type: ignore[no-untyped-call]
        with self._lock:
            if self.failure is not None:
                raise self.failure
            try:
                outputs = self._record(request)
            except Exception as error:
                self.failure = error
                raise
        identity = self._ids.get(request.type, f"{request.name}-id") if request.custom else ""
        serialized = _sync_await(rpc.serialize_properties(outputs, {}))
        return resource_pb2.RegisterResourceResponse(urn=urn, id=identity, object=serialized)

    def _record(self, request: Any) -> Mapping[str, Any]:
        """Record a resource, and return its outputs."""
        inputs: dict[str, Any] = _plain(rpc.deserialize_properties(request.object, keep_unknowns=True))
        if not request.custom:
            return inputs
        inputs = {key: value for key, value in inputs.items() if value is not None}
        self.recorded.append(Declared(request.type, request.name, inputs))
        return {"name": request.name, "arn": f"arn:aws:declared:::{request.name}", **inputs}

    def ReadResource(self, request: Any) -> Any:  # noqa: N802
        """Raise an error: existing resources cannot be read."""
        raise UserError(f'{request.type} "{request.name}": existing resources cannot be read without AWS')

    def Invoke(self, request: Any) -> Any:  # noqa: N802
        """Answer a data lookup."""
        try:
            return super().Invoke(request)  # type: ignore[no-untyped-call]
        except Exception as error:
            self.failure = self.failure or error
            raise

    def RegisterResourceOutputs(self, request: Any) -> Any:  # noqa: N802
        """Ignore the outputs of a stack or component."""
        return empty_pb2.Empty()


class _Lookups(mocks.Mocks):
    """Answers lookups; the monitor records resources itself."""

    def __init__(self, lookups: Mapping[str, Lookup]) -> None:
        self._lookups = lookups

    def call(self, args: mocks.MockCallArgs) -> Any:
        """Answer a lookup by token."""
        lookup = self._lookups.get(args.token)
        if lookup is None:
            tokens = ", ".join(sorted(self._lookups))
            raise UserError(f"lookup {args.token} has no answer, answered are: {tokens}")
        arguments = _plain(args.args)
        return {**arguments, **lookup(arguments)}

    def new_resource(self, args: mocks.MockResourceArgs) -> tuple[str | None, dict[Any, Any]]:
        """Never reached."""
        raise NotImplementedError(args.typ)


def _plain(value: Any) -> Any:
    """Return ``value`` without secret wrappers at any depth; unknown values as ``rpc.UNKNOWN``."""
    value = rpc.unwrap_rpc_secret(value)
    if isinstance(value, Unknown):
        return rpc.UNKNOWN
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list) else value
