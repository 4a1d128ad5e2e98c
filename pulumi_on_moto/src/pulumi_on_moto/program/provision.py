"""The engine's side of a Pulumi program: registers its resources and really creates them in moto."""

from __future__ import annotations

import json
import threading
from typing import Any, Final

import pulumi
from botocore.exceptions import BotoCoreError, ClientError
from google.protobuf import empty_pb2
from pulumi.output import Unknown
from pulumi.runtime import mocks, rpc
from pulumi.runtime.proto import resource_pb2
from pulumi.runtime.sync_await import _ensure_event_loop, _sync_await

from pulumi_on_moto.cluster.clusters import PREFIX, PROVIDER, Clusters
from pulumi_on_moto.errors import LocalCloudError
from pulumi_on_moto.mapping import SPECS
from pulumi_on_moto.mapping.base import Draft, Spec, create, outputs
from pulumi_on_moto.program.lookups import Lookups
from pulumi_on_moto.program.record import Resource
from pulumi_on_moto.sandbox import AwsClients

STACK_TYPE: Final = "pulumi:pulumi:Stack"
PROVIDER_PREFIX: Final = "pulumi:providers:"
_PROVIDER_INPUTS: Final = frozenset(
    {
        "region",
        "defaultTags",
        "version",
        "skipCredentialsValidation",
        "skipMetadataApiCheck",
        "skipRegionValidation",
    }
)


class Monitor(mocks.MockMonitor):
    """A resource monitor that creates what is registered.

    The SDK calls it on several threads; moto is not made for that, so creation is one at a time. After the
    first failure nothing more is created.

    Attributes:
        recorded: the resources so far.
        exports: the stack's outputs, secrets unwrapped.
        secret_exports: names of the outputs that are secrets.
        code: archives of functions by function name.
        clusters: the APIs of the Kubernetes clusters that the program's providers reach.
        failure: the first error, if any.
    """

    def __init__(
        self, clients: AwsClients, default_tags: dict[str, str], clusters: Clusters | None = None
    ) -> None:
        super().__init__(_NoMocks(self))
        self.clusters = Clusters(clients) if clusters is None else clusters
        self.recorded: list[Resource] = []
        self.exports: dict[str, Any] = {}
        self.secret_exports: frozenset[str] = frozenset()
        self.code: dict[str, bytes] = {}
        self.failure: Exception | None = None
        self._clients = clients
        self._lookups = Lookups(clients)
        self._provider_tags: dict[str, dict[str, str]] = {"": default_tags}
        self._lock = threading.Lock()

    def RegisterResource(self, request: Any) -> Any:  # noqa: N802
        """Create one resource."""
        urn = self.make_urn(request.parent, request.type, request.name)
        if request.type == STACK_TYPE:
            return resource_pb2.RegisterResourceResponse(urn=urn)
        _ensure_event_loop()  # type: ignore[no-untyped-call]
        inputs = plain(rpc.deserialize_properties(request.object, keep_unknowns=True))
        with self._lock:
            if self.failure is not None:
                raise self.failure
            try:
                resource = self._register(request, urn, inputs)
            except Exception as error:
                self.failure = error
                raise
        serialized = _sync_await(rpc.serialize_properties(dict(resource.outputs), {}))
        self.resources[urn] = mocks.MockMonitor.ResourceRegistration(urn, resource.id, dict(resource.outputs))
        return resource_pb2.RegisterResourceResponse(
            urn=urn, id=resource.id, object=serialized, unknown=request.custom and not resource.id
        )

    def ReadResource(self, request: Any) -> Any:  # noqa: N802
        """Refuse: there is nothing to adopt in an empty cloud."""
        raise LocalCloudError(
            f'{request.type} "{request.name}": a resource cannot be read into the local cloud'
        )

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
            given = rpc.deserialize_properties(request.outputs)
            self.secret_exports = frozenset(key for key, value in given.items() if rpc.is_rpc_secret(value))
            self.exports = plain(given)
        return empty_pb2.Empty()

    def lookup(self, token: str, args: dict[str, Any]) -> dict[str, Any]:
        """Answer a lookup by token."""
        with self._lock:
            return self._lookups(token, plain(args))

    def _register(self, request: Any, urn: str, inputs: dict[str, Any]) -> Resource:
        """Create one resource; called for one at a time."""
        type_, name = request.type, request.name
        parent = "" if request.parent.split("::")[2:3][0] == STACK_TYPE else request.parent
        if type_.startswith(PROVIDER_PREFIX):
            return self._keep(Resource(urn, type_, name, parent, *self._provider(type_, name, inputs), {}))
        if not request.custom:
            return self._keep(Resource(urn, type_, name, parent, "", inputs, inputs, {}))
        if type_.startswith(PREFIX):
            return self._keep(self._declared(request, urn, parent, inputs))
        spec = SPECS.get(type_)
        if spec is None:
            raise LocalCloudError(
                f'{type_} "{name}": this resource type is not emulated by the local cloud; '
                f'pulumi_on_moto.register("{type_}", Spec("service.method", …)) adds it'
            )
        if request.importId:
            raise LocalCloudError(
                f'{type_} "{name}": import of {request.importId!r}, the local cloud starts empty'
            )
        given = {key: value for key, value in inputs.items() if value is not None}
        tagged = self._with_default_tags(spec, given, request.provider)
        draft = Draft(type_, name, urn, self._clients, tagged)
        try:
            made, skipped = create(spec, draft)
            seen = outputs(spec, made)
        except (ClientError, BotoCoreError, NotImplementedError) as error:
            raise draft.fail(" ".join(str(error).split()) or type(error).__name__) from error
        self.code.update(draft.code)
        kept = Resource(urn, type_, name, parent, made.id, given, seen, skipped, bool(request.protect))
        return self._keep(kept)

    def _declared(self, request: Any, urn: str, parent: str, inputs: dict[str, Any]) -> Resource:
        """Return a resource of a cluster's API, which has it now."""
        given = {key: value for key, value in inputs.items() if value is not None}
        identity = self.clusters.declare(request.type, request.name, given, request.provider)
        protect = bool(request.protect)
        return Resource(
            urn, request.type, request.name, parent, identity, given, given, {}, protect, request.provider
        )

    def _keep(self, resource: Resource) -> Resource:
        self.recorded.append(resource)
        return resource

    def _provider(
        self, type_: str, name: str, inputs: dict[str, Any]
    ) -> tuple[str, dict[str, Any], dict[str, Any]]:
        if type_ == PROVIDER:
            return self.clusters.provider(name, inputs), inputs, inputs
        if type_ != f"{PROVIDER_PREFIX}aws":
            raise LocalCloudError(
                f'{type_} "{name}": only the providers aws and kubernetes are emulated by the local cloud'
            )
        unknown = sorted(key for key in inputs.keys() - _PROVIDER_INPUTS if inputs[key] is not None)
        if unknown:
            raise LocalCloudError(f'{type_} "{name}": input {unknown[0]!r} has no mapping in the local cloud')
        if inputs.get("region") not in (None, self._clients.region):
            raise LocalCloudError(
                f'{type_} "{name}": region is {inputs["region"]!r}, '
                f"the local cloud is in {self._clients.region!r}"
            )
        identity = f"local-{name}"
        tags = inputs.get("defaultTags") or {}
        # A provider's inputs travel as JSON text (Pulumi's provider configuration is text only).
        tags = json.loads(tags) if isinstance(tags, str) else tags
        self._provider_tags[identity] = tags.get("tags") or {}
        return identity, inputs, inputs

    def _with_default_tags(self, spec: Spec, inputs: dict[str, Any], provider: str) -> dict[str, Any]:
        tags = self._provider_tags.get(provider.rpartition("::")[2], self._provider_tags[""])
        if not tags or spec.tags == "none" or isinstance(inputs.get("tags"), list):
            return dict(inputs)
        return {**inputs, "tagsAll": {**tags, **(inputs.get("tags") or {})}}


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
        raise LocalCloudError("an unresolved output reached the local cloud")
    return value
