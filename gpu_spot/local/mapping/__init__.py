"""Which Pulumi resource types the local cloud can create, and how."""

from __future__ import annotations

from typing import Final

from gpu_spot.local.mapping import compute, identity, messaging, network, serverless
from gpu_spot.local.mapping.base import Spec

SPECS: Final[dict[str, Spec]] = {
    **network.SPECS,
    **identity.SPECS,
    **compute.SPECS,
    **messaging.SPECS,
    **serverless.SPECS,
}
