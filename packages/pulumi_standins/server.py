"""The provider protocol: what every stand-in does."""

from __future__ import annotations

import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import grpc
from google.protobuf import empty_pb2
from pulumi.runtime.proto import plugin_pb2, provider_pb2, provider_pb2_grpc

from packages.pulumi_standins.values import UNKNOWN, Path, differences, has_unknown, read, text, write
from packages.pulumi_standins.world import RefusedError, World

_PARENT_SECONDS: Final = 0.2
_MAX_MESSAGE_BYTES: Final = 400 * 2**20
"""pulumi/pulumi, sdk/go/common/util/rpcutil/rpc.go: the engine's own limit."""


class Provider:
    """What a stand-in adds to the protocol."""

    version: str
    region: str = ""

    def check(self, token: str, inputs: dict[str, Any]) -> list[tuple[str, str]]:
        """Return what is wrong with inputs: a path and a reason each."""
        raise NotImplementedError

    def defaults(
        self, token: str, name: str, inputs: dict[str, Any], seed: bytes, proposed: str
    ) -> dict[str, Any]:
        """Return the inputs that the provider sets if the program does not, such as a physical name.

        ``proposed`` is the engine's proposal by ``pulumi:autonaming``, if any.
        """
        return {}

    def forces_replacement(self, world: World, token: str, inputs: dict[str, Any], path: Path) -> bool:
        """Return whether a change at ``path`` replaces a resource."""
        raise NotImplementedError

    def outputs(self, token: str, name: str, inputs: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        """Return the id of a new resource, and its outputs that are not inputs."""
        raise NotImplementedError

    def renewed(self, token: str, outputs: dict[str, Any]) -> dict[str, Any]:
        """Return the outputs that an update changes beside its inputs."""
        return {}

    def look_up(self, world: World, token: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the result of a lookup."""
        raise RefusedError(f"{token}: no such lookup")


class Servicer(provider_pb2_grpc.ResourceProviderServicer):
    """The protocol. The names of its methods are the protocol's."""

    def __init__(self, provider: Provider, world: World) -> None:
        self._provider, self._world = provider, world
        self._lock = threading.Lock()

    def Handshake(self, request: Any, context: Any) -> Any:  # noqa: N802
        # As pulumi-aws: without it the engine proposes no names (pulumi/pulumi, plugin/provider_plugin.go).
        return provider_pb2.ProviderHandshakeResponse(supports_autonaming_configuration=True)

    def GetPluginInfo(self, request: Any, context: Any) -> Any:  # noqa: N802
        return plugin_pb2.PluginInfo(version=self._provider.version)

    def CheckConfig(self, request: Any, context: Any) -> Any:  # noqa: N802
        try:
            self._world.meet_faults("configure", request.urn)
        except RefusedError as error:
            return provider_pb2.CheckResponse(failures=[provider_pb2.CheckFailure(reason=str(error))])
        return provider_pb2.CheckResponse(inputs=request.news)

    def DiffConfig(self, request: Any, context: Any) -> Any:  # noqa: N802
        changed = any(differences(read(request.old_inputs), read(request.news)))
        kinds = provider_pb2.DiffResponse
        return kinds(changes=kinds.DIFF_SOME if changed else kinds.DIFF_NONE)

    def Configure(self, request: Any, context: Any) -> Any:  # noqa: N802
        self._provider.region = str(read(request.args).get("region", ""))
        return provider_pb2.ConfigureResponse(supportsPreview=True)

    def Check(self, request: Any, context: Any) -> Any:  # noqa: N802
        token, name = _token(request.urn), _name(request.urn)
        old, new = read(request.olds), read(request.news)
        defaults = self._provider.defaults(
            token, name, new, request.randomSeed, request.autonaming.proposed_name
        )
        inputs = {**new, **{key: old.get(key, value) for key, value in defaults.items()}}
        failures = [
            provider_pb2.CheckFailure(property=path, reason=f"{token} {path}: {reason}")
            for path, reason in self._provider.check(token, inputs)
        ]
        return provider_pb2.CheckResponse(inputs=write(inputs), failures=failures)

    def Diff(self, request: Any, context: Any) -> Any:  # noqa: N802
        token = _token(request.urn)
        old, new = read(request.old_inputs), read(request.news)
        kinds, how = provider_pb2.DiffResponse, provider_pb2.PropertyDiff
        detailed, replaced = {}, set()
        for path, kind in differences(old, new):
            forces = self._provider.forces_replacement(self._world, token, old, path)
            suffix = "_REPLACE" if forces else ""
            detailed[text(path)] = how(kind=getattr(how, f"{kind}{suffix}"), inputDiff=True)
            if forces:
                replaced.add(str(path[0]))
        # As the bridge and pulumi-kubernetes: two resources cannot have the same physical name.
        same_name = any(
            key in old and old.get(key) == new.get(key) and key in ("name", "metadata") for key in old
        )
        return kinds(
            changes=kinds.DIFF_SOME if detailed else kinds.DIFF_NONE,
            replaces=sorted(replaced),
            diffs=sorted({str(path[0]) for path, _ in differences(old, new)}),
            detailedDiff=detailed,
            hasDetailedDiff=bool(detailed),
            deleteBeforeReplace=bool(replaced) and same_name,
        )

    def Create(self, request: Any, context: Any) -> Any:  # noqa: N802
        token, inputs = _token(request.urn), read(request.properties)
        resource_id, outputs = self._provider.outputs(token, _name(request.urn), inputs)
        if request.preview:
            unknown = dict.fromkeys(outputs, UNKNOWN)
            return provider_pb2.CreateResponse(properties=write({**unknown, **inputs}))
        self._meet_faults("create", request.urn, context)
        _require_known(request.urn, inputs, context)
        with self._lock:
            try:
                self._world.refuse_if_taken(request.urn, inputs)
            except RefusedError as error:
                context.abort(grpc.StatusCode.UNKNOWN, str(error))
            self._world.record("create", request.urn, resource_id, inputs)
        return provider_pb2.CreateResponse(id=resource_id, properties=write({**outputs, **inputs}))

    def Update(self, request: Any, context: Any) -> Any:  # noqa: N802
        token, old, new = _token(request.urn), read(request.olds), read(request.news)
        computed = {key: value for key, value in old.items() if key not in read(request.old_inputs)}
        renewed = self._provider.renewed(token, old)
        if request.preview:
            unknown = dict.fromkeys(renewed, UNKNOWN)
            return provider_pb2.UpdateResponse(properties=write({**computed, **unknown, **new}))
        self._meet_faults("update", request.urn, context)
        _require_known(request.urn, new, context)
        with self._lock:
            self._world.record("update", request.urn, request.id, new)
        return provider_pb2.UpdateResponse(properties=write({**computed, **renewed, **new}))

    def Delete(self, request: Any, context: Any) -> Any:  # noqa: N802
        self._meet_faults("delete", request.urn, context)
        with self._lock:
            try:
                self._world.refuse_if_used(request.urn, request.id)
            except RefusedError as error:
                context.abort(grpc.StatusCode.UNKNOWN, str(error))
            self._world.record("delete", request.urn, request.id, {})
        return empty_pb2.Empty()

    def Read(self, request: Any, context: Any) -> Any:  # noqa: N802
        self._meet_faults("read", request.urn, context)
        changed = self._world.drift().get(
            f"{_token(request.urn).rpartition(':')[2]}::{_name(request.urn)}", {}
        )
        if changed is None:
            return provider_pb2.ReadResponse()
        inputs = {**read(request.inputs), **changed}
        properties = {**read(request.properties), **changed}
        return provider_pb2.ReadResponse(id=request.id, inputs=write(inputs), properties=write(properties))

    def Invoke(self, request: Any, context: Any) -> Any:  # noqa: N802
        try:
            self._world.meet_faults(request.tok)
            found = self._provider.look_up(self._world, request.tok, read(request.args))
        except RefusedError as error:
            return context.abort(grpc.StatusCode.UNKNOWN, str(error))
        return provider_pb2.InvokeResponse(**{"return": write(found)})

    def Cancel(self, request: Any, context: Any) -> Any:  # noqa: N802
        return empty_pb2.Empty()

    def _meet_faults(self, call: str, urn: str, context: Any) -> None:
        try:
            with self._lock:
                self._world.meet_faults(call, urn)
        except RefusedError as error:
            context.abort(grpc.StatusCode.UNKNOWN, str(error))


def _token(urn: str) -> str:
    return urn.split("::")[2].rpartition("$")[2]


def _name(urn: str) -> str:
    return urn.split("::", 3)[3]


def _require_known(urn: str, inputs: dict[str, Any], context: Any) -> None:
    if has_unknown(inputs):
        context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"{urn}: an unknown value in an update")


def serve(provider: Provider, world: World) -> None:
    """Serve the protocol until the engine ends, as its plugins do."""
    options = [("grpc.max_receive_message_length", _MAX_MESSAGE_BYTES)]
    server = grpc.server(ThreadPoolExecutor(16), options=options)
    provider_pb2_grpc.add_ResourceProviderServicer_to_server(Servicer(provider, world), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    sys.stdout.write(f"{port}\n")
    sys.stdout.flush()
    engine = os.getppid()
    while os.getppid() == engine:
        time.sleep(_PARENT_SECONDS)
    os._exit(0)
