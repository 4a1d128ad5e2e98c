"""The resource monitor that creates a program's registered resources in moto."""

from __future__ import annotations

import json
import re
from functools import partial
from typing import Any, Final

from botocore.exceptions import BotoCoreError, ClientError

from pulumi_on_moto.cluster.clusters import PREFIX, PROVIDER, Clusters, check_inputs
from pulumi_on_moto.emulator import AwsClients
from pulumi_on_moto.errors import LocalCloudError
from pulumi_on_moto.mapping import SPECS
from pulumi_on_moto.mapping.base import DEFAULT_NAME, ResourceRequest, Spec, create, outputs, tag_style
from pulumi_on_moto.mapping.shapes import supplied
from pulumi_on_moto.program.lookups import Lookups
from pulumi_on_moto.program.monitor import Monitor, Resource
from pulumi_on_moto.program.stackfile import Stack

_AUTONAMING: Final = "pulumi:autonaming"
PROVIDER_PREFIX: Final = "pulumi:providers:"
_PROVIDER_INPUTS: Final = {
    *("region", "defaultTags", "version"),
    *("skipCredentialsValidation", "skipMetadataApiCheck", "skipRegionValidation"),
}


class Provisioner(Monitor):
    """A resource monitor that creates resources one at a time, as moto is not thread-safe.

    Attributes:
        code: functions' archives by function name.
        clusters: the APIs of the Kubernetes clusters that the program's providers reach.
    """

    def __init__(self, clients: AwsClients, config: Stack, clusters: Clusters | None = None) -> None:
        super().__init__(Lookups(clients))
        if config.region != clients.region:
            raise LocalCloudError(
                f"stack {config.stack!r} is in {config.region!r}, the local cloud in {clients.region!r}"
            )
        self.clusters = Clusters(clients) if clusters is None else clusters
        self.code: dict[str, bytes] = {}
        self._clients = clients
        self._name_pattern = name_pattern(config)
        self._provider_tags: dict[str, dict[str, str]] = {"": config.default_tags}

    def _register(self, request: Any, urn: str, parent: str, inputs: dict[str, Any]) -> Resource:
        """Create one resource."""
        type_, name, supplied_inputs = request.type, request.name, supplied(inputs)
        resource = partial(Resource, urn, type_, name, parent, protect=bool(request.protect))
        if type_.startswith(PROVIDER_PREFIX):
            return resource(self._provider(type_, name, inputs), inputs, inputs, {})
        if not request.custom:
            return resource("", inputs, inputs, {})
        if type_.startswith(PREFIX):
            identity = self.clusters.declare(type_, name, supplied_inputs, request.provider)
            return resource(identity, supplied_inputs, supplied_inputs, {}, provider=request.provider)
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
        tagged = self._with_default_tags(spec, supplied_inputs, request.provider)
        draft = ResourceRequest(type_, name, urn, self._clients, tagged)
        draft.name_pattern = self._name_pattern
        try:
            created, skipped = create(spec, draft)
            output_values = outputs(spec, created)
        except (ClientError, BotoCoreError, NotImplementedError) as error:
            raise draft.fail(" ".join(str(error).split()) or type(error).__name__) from error
        self.code.update(draft.code)
        return resource(created.id, supplied_inputs, output_values, skipped, provider=request.provider)

    def _provider(self, type_: str, name: str, inputs: dict[str, Any]) -> str:
        """Return the id of a provider, whose default tags apply from now on."""
        if type_ == PROVIDER:
            return self.clusters.provider(name, inputs)
        if type_ != f"{PROVIDER_PREFIX}aws":
            raise LocalCloudError(
                f'{type_} "{name}": only the providers aws and kubernetes are emulated by the local cloud'
            )
        check_inputs(type_, name, inputs, _PROVIDER_INPUTS)
        if inputs.get("region") not in (None, self._clients.region):
            raise LocalCloudError(
                f'{type_} "{name}": region must be that of the local cloud, '
                f"{self._clients.region!r}, not {inputs['region']!r}"
            )
        identity = f"local-{name}"
        tags = inputs.get("defaultTags") or {}
        # A provider's inputs are JSON text (Pulumi's provider configuration is text only).
        tags = json.loads(tags) if isinstance(tags, str) else tags
        self._provider_tags[identity] = tags.get("tags") or {}
        return identity

    def _with_default_tags(self, spec: Spec, inputs: dict[str, Any], provider: str) -> dict[str, Any]:
        tags = self._provider_tags.get(provider.rpartition("::")[2], self._provider_tags[""])
        if not tags or tag_style(spec, self._clients) == "none" or isinstance(inputs.get("tags"), list):
            return dict(inputs)
        return {**inputs, "tagsAll": {**tags, **(inputs.get("tags") or {})}}


def name_pattern(config: Stack) -> str:
    """Return the pattern of generated names of AWS resources (``pulumi:autonaming``).

    Raises:
        LocalCloudError: the naming has a mode, names by type, or a placeholder that has no value here.
    """
    naming = json.loads(config.encoded().get(_AUTONAMING) or "{}")
    of_aws = naming.get("providers", {}).get("aws", naming)
    if not of_aws.keys() - {"providers"}:
        return DEFAULT_NAME
    pattern = str(of_aws.get("pattern"))
    pattern = pattern.replace("${stack}", config.stack).replace("${project}", config.project)
    is_unknown = "${" in re.sub(r"\$\{(name|hex\(\d+\))\}", "", pattern)
    if is_unknown or of_aws.keys() - {"pattern", "providers"}:
        allowed = "a pattern with ${project}, ${stack}, ${name} and ${hex(…)}"
        raise LocalCloudError(f"{_AUTONAMING} must be {allowed}, not {json.dumps(of_aws)}")
    return pattern
