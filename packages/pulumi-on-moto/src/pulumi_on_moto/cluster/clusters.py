"""The Kubernetes provider: maps providers to clusters and applies declared objects."""

from __future__ import annotations

import json
from collections.abc import Mapping, Set
from typing import Any, Final

from botocore.exceptions import ClientError
from moto.eks.models import EKSBackend, eks_backends

from pulumi_on_moto.cluster import rules
from pulumi_on_moto.cluster.api import ApiRefusedError, ApiServer, key_of
from pulumi_on_moto.cluster.fields import merge_key
from pulumi_on_moto.emulator import ACCOUNT, AwsClients
from pulumi_on_moto.errors import LocalCloudError
from pulumi_on_moto.fixes.clusters import ADDONS, EXISTING, is_administered, stored_on
from pulumi_on_moto.mapping.shapes import supplied

PROVIDER: Final = "pulumi:providers:kubernetes"
PREFIX: Final = "kubernetes:"
RELEASE: Final = "kubernetes:helm.sh/v3:Release"
_PROVIDER_INPUTS: Final = {"kubeconfig", "version", "enableServerSideApply"}
_RELEASE_INPUTS: Final = {
    *("atomic", "chart", "compat", "createNamespace", "name", "namespace", "repositoryOpts"),
    *("skipCrds", "timeout", "values", "version"),
}


def check_inputs(type_: str, name: str, inputs: Mapping[str, Any], accepted: Set[str]) -> None:
    """Raise ``LocalCloudError`` for an input with a value that is not a known one."""
    if unknown := sorted(supplied(inputs).keys() - accepted):
        raise LocalCloudError(f'{type_} "{name}": input {unknown[0]!r} has no meaning here')


class Clusters:
    """The clusters of a program's Kubernetes providers, by provider id."""

    def __init__(self, clients: AwsClients) -> None:
        self._clients = clients
        self._servers: dict[str, ApiServer] = {}
        self._names: dict[str, str] = {}

    def __getitem__(self, cluster: str) -> ApiServer:
        """Return the API of a cluster by its EKS name."""
        if cluster not in self._servers:
            raise LocalCloudError(f"no provider of the program reaches a cluster {cluster!r}")
        return self._servers[cluster]

    def provider(self, name: str, inputs: Mapping[str, Any]) -> str:
        """Return the id of a provider; raise ``LocalCloudError`` if its kubeconfig names no cluster."""
        check_inputs(PROVIDER, name, inputs, _PROVIDER_INPUTS)
        try:
            cluster = self._reached(json.loads(inputs["kubeconfig"]))
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise LocalCloudError(
                f'{PROVIDER} "{name}": kubeconfig is not one that EKS takes: {error}'
            ) from None
        except ClientError as error:
            raise LocalCloudError(f'{PROVIDER} "{name}": {error}') from None
        identity = f"local-{name}"
        self._names[identity] = cluster
        return identity

    def declare(self, type_: str, name: str, inputs: Mapping[str, Any], provider: str) -> str:
        """Create or update a declared object; return its id.

        Raises:
            LocalCloudError: no cluster is named, or its API rejects the object.
        """
        cluster = self._names.get(provider.rpartition("::")[2])
        if cluster is None:
            raise LocalCloudError(
                f'{type_} "{name}": no provider names its cluster; a kubeconfig is not available here'
            )
        if not is_administered(self._backend, cluster):
            raise LocalCloudError(
                f'{type_} "{name}": Unauthorized: {cluster!r} has no access entry of an administrator, '
                "and its creator is not one by default"
            )
        server = self._servers[cluster]
        self._serve(cluster, server)
        if type_ == RELEASE:
            return self._install(server, type_, name, inputs)
        manifest = body(inputs)
        if type_ != token(manifest):
            raise LocalCloudError(f'{type_} "{name}": declares {token(manifest)}')
        try:
            key = server.apply(manifest)
        except ApiRefusedError as error:
            raise LocalCloudError(f'{type_} "{name}": {error}') from None
        return f"{key.namespace}/{key.name}" if key.namespace else key.name

    def read(self, type_: str, inputs: Mapping[str, Any], provider_id: str) -> dict[str, Any]:
        """Return the current values of the inputs that the program declared."""
        if type_ == RELEASE:
            return dict(inputs)
        server = self._servers[self._names[provider_id.rpartition("::")[2]]]
        live = server.read(key_of(inputs))
        return {key: _of(value, live.get(key)) for key, value in inputs.items()}

    def _reached(self, config: Mapping[str, Any]) -> str:
        [cluster_entry], [user] = config["clusters"], config["users"]
        call = user["user"]["exec"]
        words = call["args"]
        if call["command"] != "aws" or "get-token" not in words:
            raise ValueError(f"exec must be aws … eks get-token, not {call['command']!r} {words}")
        cluster = str(words[words.index("--cluster-name") + 1])
        description = self._clients("eks").describe_cluster(name=cluster)["cluster"]
        endpoint = cluster_entry["cluster"]
        if endpoint["server"] != description["endpoint"]:
            raise ValueError(f"server {endpoint['server']!r} is not the one of {cluster!r}")
        if endpoint["certificate-authority-data"] != description["certificateAuthority"]["data"]:
            raise ValueError(f"certificate-authority-data is not the one of {cluster!r}")
        if cluster not in self._servers:
            is_existing = cluster in stored_on(self._backend, EXISTING)
            self._servers[cluster] = ApiServer(description["version"], None if is_existing else set())
        return cluster

    @property
    def _backend(self) -> EKSBackend:
        return eks_backends[ACCOUNT][self._clients.region]

    def _serve(self, cluster: str, server: ApiServer) -> None:
        if server.groups is not None:
            for addon in stored_on(self._backend, ADDONS).get(cluster, {}):
                server.groups |= rules.ADDONS.get(addon, frozenset())

    def _install(self, server: ApiServer, type_: str, name: str, inputs: Mapping[str, Any]) -> str:
        check_inputs(type_, name, inputs, _RELEASE_INPUTS)
        if not inputs.get("version"):
            raise LocalCloudError(
                f'{type_} "{name}": version is missing; a chart without a version is not reproducible'
            )
        chart = str(inputs["chart"]).rpartition("/")[2]
        if server.groups is not None:
            server.groups |= rules.CHARTS.get(chart, frozenset())
        namespace = inputs.get("namespace") or "default"
        if inputs.get("createNamespace"):
            server.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}, "helm")
        return f"{namespace}/{inputs.get('name') or name}"


def token(user_entry: Mapping[str, Any]) -> str:
    """Return the Pulumi type of an object."""
    version = user_entry["apiVersion"]
    return f"{PREFIX}{version if '/' in version else f'core/{version}'}:{user_entry['kind']}"


def body(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the object for a resource's inputs, with integral numbers as integers.

    The engine passes all numbers as floats.
    """
    return {key: _whole(value) for key, value in supplied(inputs).items()}


def _whole(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, Mapping):
        return {key: _whole(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_whole(item) for item in value]
    return value


def _of(declared: Any, live: Any) -> Any:
    """Return the live values of the declared fields; others have other owners."""
    if isinstance(declared, Mapping) and isinstance(live, Mapping):
        return {key: _of(value, live.get(key)) for key, value in declared.items()}
    if isinstance(declared, list) and isinstance(live, list):
        named = {merge_key(item): item for item in live if isinstance(item, Mapping) and merge_key(item)}
        if named and all(isinstance(item, Mapping) and merge_key(item) in named for item in declared):
            return [_of(item, named[merge_key(item)]) for item in declared]
    return live
