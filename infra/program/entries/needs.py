"""What an entry's instances are there for: it chooses their permissions and the network's endpoints."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

import pulumi

from infra.schema.work import GroupEntry
from infra.scope import Scope
from userdata.agent.aws.permissions import Need

_ECR: Final = re.compile(r"(\d{12})\.dkr\.ecr\.([a-z0-9-]+)\.amazonaws\.com(?:\.cn)?/([^@:]+)")


def needs(entry: GroupEntry, images: Iterable[str], own: Mapping[Need, bool]) -> frozenset[Need]:
    """Return an entry's needs: those of all kinds, and which of its kind's ``own`` it has."""
    of_all: dict[Need, bool] = {
        "image": any(map(_ECR.match, images)),
        "hooks": not entry.capacity.is_fleet or entry.capacity.fallback.enabled,
        "attached": bool(entry.datasets),
    }
    return frozenset(need for need, applies in {**of_all, **own}.items() if applies)


def repositories(images: Iterable[str], scope: Scope) -> tuple[pulumi.Input[str], ...]:
    """Return the ARNs of the ECR repositories of ``images``.

    An image from elsewhere needs no permission of ours; several may be of one repository.
    """
    places = {place.groups() for image in images if (place := _ECR.match(image))}
    return tuple(scope.arn_of_image(*place) for place in sorted(places))
