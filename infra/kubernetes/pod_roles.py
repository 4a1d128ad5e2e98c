"""Roles that allow calls of the API for the pods of the stack's namespace, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from infra.kubernetes.context import Manifest

API_GROUP: Final = "rbac.authorization.k8s.io"


def bound_role(metadata: Manifest, verbs: Sequence[str], subject: Manifest) -> list[Manifest]:
    """Return a role with ``verbs`` on pods, and its binding to a subject."""
    rule = {"apiGroups": [""], "resources": ["pods"], "verbs": [*verbs]}
    return [
        {"apiVersion": f"{API_GROUP}/v1", "kind": "Role", "metadata": metadata, "rules": [rule]},
        {
            "apiVersion": f"{API_GROUP}/v1",
            "kind": "RoleBinding",
            "metadata": metadata,
            "roleRef": {"apiGroup": API_GROUP, "kind": "Role", "name": metadata["name"]},
            "subjects": [subject],
        },
    ]
