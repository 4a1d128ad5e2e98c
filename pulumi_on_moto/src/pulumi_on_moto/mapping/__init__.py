"""Which Pulumi resource types the local cloud can create, and how."""

from __future__ import annotations

from typing import Final

from pulumi_on_moto.mapping import (
    compute,
    fleet,
    identity,
    messaging,
    monitoring,
    network,
    serverless,
    storage,
)
from pulumi_on_moto.mapping.base import Spec

SPECS: Final[dict[str, Spec]] = {
    **network.SPECS,
    **identity.SPECS,
    **compute.SPECS,
    **fleet.SPECS,
    **messaging.SPECS,
    **serverless.SPECS,
    **storage.SPECS,
    **monitoring.SPECS,
}
