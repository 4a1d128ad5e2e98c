"""The needs of an entry's instances, which determine their permissions and the VPC endpoints."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

import pulumi

from contracts.partitions import DNS_SUFFIXES
from infra.schema.work import GroupEntry
from infra.scope import Scope
from userdata.agent.aws.permissions import Need

_DOMAINS: Final = "|".join(map(re.escape, DNS_SUFFIXES.values()))
_ECR: Final = re.compile(rf"(\d{{12}})\.dkr\.ecr\.([a-z0-9-]+)\.(?:{_DOMAINS})/([^@:]+)")


def needs(entry: GroupEntry, images: Iterable[str], kind_needs: Mapping[Need, bool]) -> frozenset[Need]:
    """Return the needs of an entry: those of all kinds, and those that are true in ``kind_needs``."""
    common_needs: dict[Need, bool] = {
        "image": any(map(_ECR.match, images)),
        "hooks": not entry.capacity.is_fleet or entry.capacity.fallback.enabled,
        "attached": bool(entry.datasets),
    }
    return frozenset(need for need, applies in {**common_needs, **kind_needs}.items() if applies)


def repositories(images: Iterable[str], scope: Scope) -> tuple[pulumi.Input[str], ...]:
    """Return the ARNs of the ECR repositories of ``images``, without duplicates.

    Images of other registries need no permissions.
    """
    repositories = {match.groups() for image in images if (match := _ECR.match(image))}
    return tuple(scope.image_repository_arn(*repository) for repository in sorted(repositories))
