"""Secret variables of pods, by the Secrets Store CSI driver, and the pods' identities."""

from __future__ import annotations

import json

from contracts.agent import secret_sources
from contracts.agent.secret_sources import SecretSource
from infra.kubernetes.context import ClusterContext, Manifest, named_for
from infra.schema.work import Work


def secret_manifests(entry: Work, context: ClusterContext) -> list[Manifest]:
    """Return the SecretProviderClass of an entry's ``secrets``; an empty list if it has none."""
    if not entry.secrets:
        return []
    # Source: secrets-store-csi-driver-provider-aws, "SecretProviderClass options".
    objects: dict[SecretSource, Manifest] = {}
    data = []
    for variable, reference in sorted(entry.secrets.items()):
        source = secret_sources.parse(reference)
        whole = SecretSource(source.name, "", source.is_parameter)
        kind = "ssmparameter" if source.is_parameter else "secretsmanager"
        item = objects.setdefault(
            whole, {"objectName": source.name, "objectType": kind, "objectAlias": f"value-{len(objects)}"}
        )
        alias = item["objectAlias"]
        if source.key:
            alias = f"key-{variable}"
            item.setdefault("jmesPath", []).append({"path": f'"{source.key}"', "objectAlias": alias})
        data.append({"objectName": alias, "key": variable})
    return [provider_class(_name(entry), entry.name, json.dumps([*objects.values()]), data, context)]


def provider_class(
    name: str, entry: str, objects: str, data: list[Manifest], context: ClusterContext
) -> Manifest:
    """Return a SecretProviderClass; ``data``: the keys of the Secret of its name, by the objects' aliases."""
    parameters = {"region": context.region, "usePodIdentity": "true", "objects": objects}
    secret = {"secretName": name, "type": "Opaque", "data": data}
    return {
        "apiVersion": "secrets-store.csi.x-k8s.io/v1",
        "kind": "SecretProviderClass",
        "metadata": context.metadata(name, entry),
        "spec": {"provider": "aws", "parameters": parameters, "secretObjects": [secret]},
    }


def secret_variables(entry: Work) -> tuple[list[Manifest], list[Manifest], list[Manifest]]:
    """Return the variables, volumes and mounts of a pod for an entry's ``secrets``."""
    if not entry.secrets:
        return [], [], []
    keys = {variable: variable for variable in sorted(entry.secrets)}
    return synced(_name(entry), "secrets", "/run/secrets/gpu-spot-variables", keys)


def synced(
    name: str, volume: str, path: str, keys: dict[str, str]
) -> tuple[list[Manifest], list[Manifest], list[Manifest]]:
    """Return the variables, volumes and mounts of a pod that reads a SecretProviderClass's Secret.

    The driver creates the Secret when a pod mounts the class, updates it while one does, and deletes it with
    the last one. So KEDA, which reads a Deployment's variables, would fail without pods, and never start one:
    the variables are optional, and a volume of the Secret, which is not, holds the containers back.
    With another reference the name is another, too: else pods would not follow it, and one beside pods from
    before would start with their Secret.
    Sources: secrets-store-csi-driver, "Sync as Kubernetes Secret"; keda 2.21, ``scale_resolvers.go``.

    Args:
        name: of the SecretProviderClass and its Secret.
        volume: name of the volume.
        path: where it is mounted; the Secret is at ``path-synced``.
        keys: keys of the Secret by variable.
    """
    reads = {"secretProviderClass": name}
    driver = {"driver": "secrets-store.csi.k8s.io", "readOnly": True, "volumeAttributes": reads}
    variables = [
        {"name": variable, "valueFrom": {"secretKeyRef": {"name": name, "key": key, "optional": True}}}
        for variable, key in keys.items()
    ]
    secret = {"secretName": name, "defaultMode": 0o400}
    volumes: list[Manifest] = [
        {"name": volume, "csi": driver},
        {"name": f"{volume}-synced", "secret": secret},
    ]
    mounts = [
        {"name": f"{volume}{ending}", "mountPath": f"{path}{ending}", "readOnly": True}
        for ending in ("", "-synced")
    ]
    return variables, volumes, mounts


def _name(entry: Work) -> str:
    return named_for(f"{entry.name}-secrets", json.dumps(entry.secrets, sort_keys=True))
