"""Specification of a Pulumi resource type as AWS API calls."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import jmespath

from pulumi_on_moto.emulator import ACCOUNT, AwsClients
from pulumi_on_moto.errors import LocalCloudError
from pulumi_on_moto.mapping.shapes import UnmatchedInputError, convert, key_values, member, supplied

TagStyle = Literal["", "none", "ec2", "after", "specification"]
"""How tags are set: as the operation's model says (by its parameter; by EC2's ``CreateTags`` where it has
``TagSpecifications``), not at all, by EC2's ``CreateTags``, by follow-up calls, by ``TagSpecifications``."""


DEFAULT_NAME: Final = "${name}-${hex(7)}"


@dataclass(slots=True)
class ResourceRequest:
    """A request under construction: remaining inputs, and parameters already set."""

    type: str
    name: str
    urn: str
    clients: AwsClients
    inputs: dict[str, Any]
    params: dict[str, Any] = field(default_factory=dict)
    code: dict[str, bytes] = field(default_factory=dict)
    name_pattern: str = DEFAULT_NAME

    def take(self, key: str, default: Any = None) -> Any:
        """Remove an input and return it; the caller applies it."""
        return self.inputs.pop(key, default)

    def need(self, key: str) -> Any:
        """Remove a required input and return it."""
        if key not in self.inputs:
            raise self.fail(f"input {key!r} is missing")
        return self.inputs.pop(key)

    def put(self, **params: Any) -> None:
        """Set request parameters; None: not set."""
        self.params.update(supplied(params))

    def fail(self, problem: str) -> LocalCloudError:
        """Return an error with this resource's name."""
        return LocalCloudError(f'{self.type} "{self.name}": {problem}')

    def matched(self, service: str, operation: str, value: Any, label: str, *path: str) -> Any:
        """Return ``value`` in the shape of an operation's input, or of the member at ``path``.

        ``label`` is the input's name in errors; ``"[]"`` in ``path`` enters a list, ``"{}"`` a mapping.
        """
        shape: Any = self.clients(service).meta.service_model.operation_model(operation).input_shape
        for step in path:
            shape = shape.member if step == "[]" else shape.value if step == "{}" else shape.members[step]
        try:
            return convert(value, shape, label)
        except UnmatchedInputError as error:
            raise self.fail(f"{error} ({service} {operation} in the local cloud)") from None


@dataclass(slots=True)
class CreatedResource(ResourceRequest):
    """A created resource: its request, of which all inputs remain, with AWS's response and the id in it."""

    response: Mapping[str, Any] = field(default_factory=dict)
    id: str = ""

    @property
    def tags(self) -> dict[str, str]:
        """All its tags, with the provider's default tags."""
        return {**(self.inputs.get("tagsAll") or {}), **(self.inputs.get("tags") or {})}

    def arn(self, service: str, rest: str) -> str:
        """Return an ARN in this account and region."""
        return f"arn:aws:{service}:{self.clients.region}:{ACCOUNT}:{rest}"

    def find(self, path: str) -> Any:
        """Return the value of a JMESPath in the response."""
        return jmespath.search(path, self.response)


Outputs = Callable[[CreatedResource], Mapping[str, Any]]


def _no_outputs(resource: CreatedResource) -> Mapping[str, Any]:
    return {}


@dataclass(frozen=True, slots=True)
class Spec:
    """How a Pulumi type is created.

    Attributes:
        operation: ``service.method`` in boto3's spelling.
        identity: the source of the physical id: a JMESPath into the response, ``=Name`` for a request
        parameter, or a function of the created resource.
        rename: input → request parameter, if the names differ.
        autoname: the input for which Pulumi generates a name if it is omitted.
        tags: how tags are set, if the operation's model does not say it.
        shape: sets parameters that name matching cannot; runs before it.
        after: follow-up calls, for the inputs in ``takes``.
        takes: inputs that ``after`` applies.
        outputs: outputs in addition to the inputs.
        no_effect: inputs without effect here, each with the reason.
    """

    operation: str
    identity: str | Callable[[CreatedResource], str]
    rename: Mapping[str, str] = field(default_factory=dict)
    autoname: str = ""
    tags: TagStyle = ""
    shape: Callable[[ResourceRequest], None] | None = None
    after: Callable[[CreatedResource], None] | None = None
    takes: Collection[str] = ()
    outputs: Outputs = _no_outputs
    no_effect: Mapping[str, str] = field(default_factory=dict)

    @property
    def service(self) -> str:
        """The boto3 service name."""
        return self.operation.partition(".")[0]

    @property
    def method(self) -> str:
        """The boto3 method name."""
        return self.operation.partition(".")[2]


_DOCUMENTS: Final = frozenset(
    {"policy", "assumeRolePolicy", "eventPattern", "redrivePolicy", "redriveAllowPolicy"}
)
REGION_INPUT: Final = "region"
"""pulumi-aws 7 gives every resource a ``region`` input; the provider fills it."""


def create(spec: Spec, draft: ResourceRequest) -> tuple[CreatedResource, dict[str, str]]:
    """Send a draft; return the created resource and the inputs without effect, with reasons."""
    for key in _DOCUMENTS & draft.inputs.keys():
        # The provider accepts a document as text or object and returns it as text.
        draft.inputs[key] = json_text(draft.inputs[key])
    remaining = dict(draft.inputs)
    region = draft.take(REGION_INPUT)
    if region not in (None, draft.clients.region):
        raise draft.fail(f"region must be the local cloud's {draft.clients.region!r}, not {region!r}")
    if spec.autoname and draft.inputs.get(spec.autoname) is None:
        draft.inputs[spec.autoname] = remaining[spec.autoname] = generated_name(draft)
    tags = _take_tags(draft)
    style = tag_style(spec, draft.clients)
    if tags and style == "none" and "tags" in remaining:
        raise draft.fail(f"input 'tags' has no mapping to {spec.operation} in the local cloud")
    skipped = {key: reason for key, reason in spec.no_effect.items() if draft.take(key) is not None}
    for key in spec.takes:
        draft.take(key)
    if spec.shape is not None:
        spec.shape(draft)
    _match(spec, draft)
    if tags and style == "specification":
        kind = spec.method.removeprefix("create_").replace("_", "-")
        draft.put(TagSpecifications=[{"ResourceType": kind, "Tags": key_values(tags)}])
    elif tags and style not in ("none", "ec2", "after"):
        draft.params[style] = convert(tags, _input_shape(spec, draft.clients).members[style], "tags")
    response = getattr(draft.clients(spec.service), spec.method)(**draft.params)
    created = CreatedResource(
        draft.type, draft.name, draft.urn, draft.clients, remaining, draft.params, response=response
    )
    created.id = _identity(spec, created)
    if tags and style == "ec2":
        draft.clients("ec2").create_tags(Resources=[created.id], Tags=key_values(tags))
    if spec.after is not None:
        spec.after(created)
    return created, skipped


def outputs(spec: Spec, resource: CreatedResource) -> dict[str, Any]:
    """Return the outputs of a resource: its inputs, values computed by AWS, and all its tags."""
    result = dict(resource.inputs)
    if spec.autoname:
        result.setdefault("name", resource.inputs.get(spec.autoname))
    result.setdefault("region", resource.clients.region)
    if resource.inputs.get("tagsAll") is None and resource.inputs.get("tags") is not None:
        result["tagsAll"] = resource.inputs["tags"]
    result.update(spec.outputs(resource))
    return supplied(result)


def generated_name(draft: ResourceRequest) -> str:
    """Return a physical name as Pulumi generates it: by default the logical name and seven digits."""
    digits = hashlib.sha256(draft.urn.encode()).hexdigest()
    named = draft.name_pattern.replace("${name}", draft.name)
    return re.sub(r"\$\{hex\((\d+)\)\}", lambda match: digits[: int(match[1])], named)


def json_text(value: Any) -> str | None:
    """Return a policy or pattern, text or object, as text."""
    return value if value is None or isinstance(value, str) else json.dumps(value)


def output_paths(**paths: str) -> Outputs:
    """Return outputs read from the response by JMESPath."""
    return lambda resource: {name: resource.find(path) for name, path in paths.items()}


def _take_tags(draft: ResourceRequest) -> dict[str, str]:
    if isinstance(draft.inputs.get("tags"), list):
        return {}  # Auto Scaling's own list of tags is an input like any other
    tags = draft.take("tags") or {}
    return {**(draft.take("tagsAll") or {}), **tags}


def tag_style(spec: Spec, clients: AwsClients) -> str:
    """Return how tags are set: a style other than ``""``, or the name of the operation's parameter."""
    shape = _input_shape(spec, clients)
    derived = (
        "ec2" if "TagSpecifications" in shape.members else spec.rename.get("tags") or member(shape, "tags")
    )
    return spec.tags or derived or "none"


def _match(spec: Spec, draft: ResourceRequest) -> None:
    shape = _input_shape(spec, draft.clients)
    for key, value in list(draft.inputs.items()):
        name = spec.rename.get(key) or member(shape, key)
        if name is None:
            raise draft.fail(f"input {key!r} has no mapping to {spec.operation} in the local cloud")
        try:
            draft.params[name] = convert(value, shape.members[name], key)
        except UnmatchedInputError as error:
            raise draft.fail(f"{error} ({spec.operation} in the local cloud)") from None


def _input_shape(spec: Spec, clients: AwsClients) -> Any:
    meta = clients(spec.service).meta
    return meta.service_model.operation_model(meta.method_to_api_mapping[spec.method]).input_shape


def _identity(spec: Spec, resource: CreatedResource) -> str:
    if callable(spec.identity):
        identity: Any = spec.identity(resource)
    elif spec.identity.startswith("="):
        identity = resource.params[spec.identity[1:]]
    else:
        identity = resource.find(spec.identity)
    if not isinstance(identity, str) or not identity:
        raise resource.fail(f"{spec.operation} returned no id")
    return identity
