"""Secret variables of pods, by the Secrets Store CSI driver, and the pods' identities."""

from __future__ import annotations

import json

from contracts.agent import secret_sources
from contracts.agent.secret_sources import SecretSource
from infra.kubernetes.context import ClusterContext, Manifest
from infra.schema.work import Work


def secret_manifests(entry: Work, context: ClusterContext) -> list[Manifest]:
    """Return the SecretProviderClass of an entry's ``secrets``; an empty list if it has none."""
    if not entry.secrets:
        return []
    name = _name(entry)
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
    parameters = {
        "region": context.region,
        "usePodIdentity": "true",
        "objects": json.dumps([*objects.values()]),
    }
    return [
        {
            "apiVersion": "secrets-store.csi.x-k8s.io/v1",
            "kind": "SecretProviderClass",
            "metadata": context.metadata(name, entry.name),
            "spec": {
                "provider": "aws",
                "parameters": parameters,
                "secretObjects": [{"secretName": name, "type": "Opaque", "data": data}],
            },
        }
    ]


def secret_variables(entry: Work) -> tuple[list[Manifest], list[Manifest], list[Manifest]]:
    """Return the variables, volumes and mounts of a pod for an entry's ``secrets``.

    The driver creates the Secret when a pod mounts it, and updates it while one does.
    """
    if not entry.secrets:
        return [], [], []
    name = _name(entry)
    reads = {"secretProviderClass": name}
    driver = {"driver": "secrets-store.csi.k8s.io", "readOnly": True, "volumeAttributes": reads}
    variables = [
        {"name": variable, "valueFrom": {"secretKeyRef": {"name": name, "key": variable}}}
        for variable in sorted(entry.secrets)
    ]
    mount = {"name": "secrets", "mountPath": "/run/secrets/gpu-spot-variables", "readOnly": True}
    return variables, [{"name": "secrets", "csi": driver}], [mount]


def _name(entry: Work) -> str:
    return f"{entry.name}-secrets"
