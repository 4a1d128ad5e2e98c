"""The right of a worker's pod to set the cost of its own deletion, by which workers without work go first.

RBAC cannot limit an account to its own pod or to an annotation, so an admission policy does: the API server
puts the pod's name into the identity of a token that is bound to a pod.
Sources: Kubernetes, "ReplicaSet", pod deletion cost; "Managing Service Accounts", bound tokens; "Validating
Admission Policy"; "Configure a Pod to Use a Projected Volume for Storage".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from infra.kubernetes.context import ClusterContext, Manifest
from infra.schema import Service

ANNOTATION: Final = "controller.kubernetes.io/pod-deletion-cost"
"""Of two pods of a ReplicaSet the one with the lower cost is deleted first; the default is 0."""
POD_VARIABLE: Final = "SPOT_WORK_POD"
"""The pod's name, for `spot_work`, which sets the cost."""
TOKEN_MOUNT: Final[Manifest] = {
    "name": "pod-token",
    "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
    "readOnly": True,
}
"""Where clients of the API look for the token."""
_TOKEN_SECONDS: Final = 3600
_RBAC: Final = "rbac.authorization.k8s.io"
_POLICIES: Final = "admissionregistration.k8s.io/v1"


def token_volume() -> Manifest:
    """Return the volume with the account's token, bound to the pod and renewed, and the API's authority."""
    namespace = {"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}
    sources = [
        {"serviceAccountToken": {"path": "token", "expirationSeconds": _TOKEN_SECONDS}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [namespace]}},
    ]
    return {"name": TOKEN_MOUNT["name"], "projected": {"sources": sources}}


def pod_variable() -> Manifest:
    """Return the variable with the pod's name."""
    return {"name": POD_VARIABLE, "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}


def permissions(service: Service, context: ClusterContext) -> list[Manifest]:
    """Return the role that lets a service's account patch pods, as far as ``policy`` admits it."""
    metadata = context.metadata(f"{service.name}-pod", service.name)
    account = {"kind": "ServiceAccount", "name": service.name, "namespace": context.namespace}
    rule = {"apiGroups": [""], "resources": ["pods"], "verbs": ["patch"]}
    return [
        {"apiVersion": f"{_RBAC}/v1", "kind": "Role", "metadata": metadata, "rules": [rule]},
        {
            "apiVersion": f"{_RBAC}/v1",
            "kind": "RoleBinding",
            "metadata": metadata,
            "roleRef": {"apiGroup": _RBAC, "kind": "Role", "name": metadata["name"]},
            "subjects": [account],
        },
    ]


def policy(services: Sequence[Service], context: ClusterContext) -> list[Manifest]:
    """Return the admission policy for the accounts of all scaled services."""
    accounts = [
        f"system:serviceaccount:{context.namespace}:{service.name}"
        for service in services
        if service.is_scaled
    ]
    if not accounts:
        return []
    name = context.cluster_name("pods")
    pod_of_token = "request.userInfo.extra[?'authentication.kubernetes.io/pod-name'][0].orValue('')"  # noqa: S105
    before, after = (f"{item}.metadata.?annotations.orValue({{}})" for item in ("oldObject", "object"))
    unchanged = " && ".join(
        f"object.{path} == oldObject.{path}"
        for path in ("spec", *(f"metadata.?{key}" for key in ("labels", "ownerReferences", "finalizers")))
    )
    rules = {
        f"{pod_of_token} == object.metadata.name": "a worker changes its own pod only",
        unchanged: "a worker changes annotations only",
        f"{after}.all(key, key == '{ANNOTATION}' || {before}[?key] == optional.of({after}[key]))"
        f" && {before}.all(key, key in {after})": f"a worker changes the annotation {ANNOTATION} only",
    }
    updates = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["pods"]}
    spec: Manifest = {
        "failurePolicy": "Fail",
        "matchConstraints": {
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": context.namespace}},
            "resourceRules": [updates],
        },
        "matchConditions": [{"name": "workers", "expression": f"request.userInfo.username in {accounts}"}],
        "validations": [
            {"expression": expression, "message": message} for expression, message in rules.items()
        ],
    }
    metadata = context.metadata(name, in_cluster=True)
    return [
        {"apiVersion": _POLICIES, "kind": "ValidatingAdmissionPolicy", "metadata": metadata, "spec": spec},
        {
            "apiVersion": _POLICIES,
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": metadata,
            "spec": {"policyName": name, "validationActions": ["Deny"]},
        },
    ]
