"""Roles of pods in EKS, which moto does not have.

Sources: ``CreatePodIdentityAssociation`` in botocore's model; the EKS guide, "Learn how EKS Pod Identity
grants pods access to AWS services" (one role for a service account, trusted as pods.eks.amazonaws.com).
"""

from __future__ import annotations

import json
from typing import Any, Final

from moto.core.exceptions import ServiceException
from moto.core.responses import ActionResult
from moto.eks import responses, urls
from moto.eks.models import EKSBackend
from moto.eks.responses import EKSResponse
from moto.iam.models import iam_backends

from pulumi_on_moto.fixes import clusters
from pulumi_on_moto.fixes.fix import Fix

_SERVICE: Final = "pods.eks.amazonaws.com"
_ACTIONS: Final = {"sts:AssumeRole", "sts:TagSession"}
_KEPT: Final = "pod_identity_associations"


class _InUseError(ServiceException):
    code = "ResourceInUseException"


class _InvalidError(ServiceException):
    code = "InvalidParameterException"


def _create(response: EKSResponse) -> ActionResult:
    given: dict[str, Any] = json.loads(response.body)
    cluster = str(response._get_param("name"))
    backend: EKSBackend = response.eks_backend
    kept: dict[tuple[str, str, str], dict[str, Any]] = backend.__dict__.setdefault(_KEPT, {})
    key = (cluster, given["namespace"], given["serviceAccount"])
    if key in kept:
        raise _InUseError("Association already exists: " + kept[key]["associationId"])
    _check_trust(backend.account_id, given["roleArn"])
    identity = f"a-{len(kept):017d}"
    kept[key] = {
        "clusterName": cluster,
        "namespace": given["namespace"],
        "serviceAccount": given["serviceAccount"],
        "roleArn": given["roleArn"],
        "tags": given.get("tags") or {},
        "associationId": identity,
        "associationArn": f"arn:aws:eks:{backend.region_name}:{backend.account_id}:"
        f"podidentityassociation/{cluster}/{identity}",
    }
    return ActionResult({"association": kept[key]})


def _check_trust(account: str, arn: str) -> None:
    role = next((one for one in iam_backends[account]["aws"].roles.values() if one.arn == arn), None)
    if role is None:
        raise _InvalidError(f"Role provided in the request does not exist: {arn}")
    trusted = [
        action
        for one in json.loads(role.assume_role_policy_document)["Statement"]
        if _SERVICE in str(one.get("Principal", {}).get("Service", ""))
        for action in ([one["Action"]] if isinstance(one["Action"], str) else one["Action"])
    ]
    if not _ACTIONS.issubset(trusted):
        raise _InvalidError(
            f"Trust policy of role {arn} does not let {_SERVICE} assume it and tag its session"
        )


_PATH: Final = "{0}/clusters/(?P<name>[^/]+)/pod-identity-associations$"

POD_IDENTITIES: Final = Fix(
    "roles of pods in EKS",
    moto="has no CreatePodIdentityAssociation",
    aws="keeps one for each service account, and refuses roles that do not trust it; that the cluster is "
    "there is not asked here: a program may have found it",
    patches=(
        (EKSResponse, "create_pod_identity_association", _create),
        (urls, "url_paths", {**urls.url_paths, **clusters.PATHS, _PATH: responses.EKSResponse.dispatch}),
    ),
)
