"""The needs of an entry's instances, which determine their permissions and the VPC endpoints."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

import pulumi

from contracts.partitions import ECR_IMAGE
from infra.iam.instance_statements import InstanceAccess
from infra.schema.work import GroupEntry, Work
from infra.scope import Scope
from userdata.agent.aws.permissions import Need


def needs(entry: GroupEntry, images: Iterable[str], kind_needs: Mapping[Need, bool]) -> frozenset[Need]:
    """Return the needs of an entry: those of all kinds, and those that are true in ``kind_needs``."""
    common_needs: dict[Need, bool] = {
        "image": any(map(ECR_IMAGE.match, images)),
        "hooks": not entry.capacity.is_fleet or entry.capacity.fallback.enabled,
        "attached": bool(entry.datasets),
    }
    return frozenset(need for need, applies in {**common_needs, **kind_needs}.items() if applies)


def work_needs(work: Work) -> dict[Need, bool]:
    """Return the needs of a command's secrets."""
    return {"secret": bool(work.secret_names), "parameter": bool(work.parameter_names)}


def work_access(work: Work, access: InstanceAccess, more_secrets: Iterable[str] = ()) -> InstanceAccess:
    """Return ``access`` with a command's secrets and permissions."""
    return dataclasses.replace(
        access,
        secrets=tuple(dict.fromkeys((*more_secrets, *work.secret_names))),
        parameters=work.parameter_names,
        permissions=work.permissions,
        policy_arns=work.policy_arns,
    )


def repositories(images: Iterable[str], scope: Scope) -> tuple[pulumi.Input[str], ...]:
    """Return the ARNs of the ECR repositories of ``images``, without duplicates.

    Images of other registries need no permissions.
    """
    repositories = {match.groups()[1:] for image in images if (match := ECR_IMAGE.match(image))}
    return tuple(scope.image_repository_arn(*repository) for repository in sorted(repositories))
