"""Registry of the Pulumi resource types that the local cloud can create."""

from __future__ import annotations

from typing import Final

from pulumi_on_moto.errors import LocalCloudError
from pulumi_on_moto.mapping import (
    clusters,
    compute,
    identity,
    load_balancers,
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
    **clusters.SPECS,
    **compute.SPECS,
    **load_balancers.SPECS,
    **messaging.SPECS,
    **serverless.SPECS,
    **storage.SPECS,
    **monitoring.SPECS,
}


def register(type_: str, spec: Spec) -> None:
    """Register how a resource type is created; replaces an earlier registration.

    ``type_``: Pulumi's type token; ``spec``: the boto3 operation, and its differences to the inputs' names.

    Raises:
        LocalCloudError: ``type_`` is not a type token.
    """
    if type_.count(":") != 2:
        raise LocalCloudError(f"type {type_!r} must be a token such as aws:kinesis/stream:Stream")
    SPECS[type_] = spec
