"""Which Pulumi resource types the local cloud can create, and how."""

from __future__ import annotations

from typing import Final

from pulumi_on_moto.errors import LocalCloudError
from pulumi_on_moto.mapping import (
    brokers,
    clusters,
    experiments,
    identity,
    messaging,
    monitoring,
    network,
    secrets,
    serverless,
    storage,
)
from pulumi_on_moto.mapping.base import Spec
from pulumi_on_moto.mapping.capacity import compute, fleet

SPECS: Final[dict[str, Spec]] = {
    **network.SPECS,
    **identity.SPECS,
    **clusters.SPECS,
    **compute.SPECS,
    **fleet.SPECS,
    **messaging.SPECS,
    **brokers.SPECS,
    **secrets.SPECS,
    **serverless.SPECS,
    **storage.SPECS,
    **monitoring.SPECS,
    **experiments.SPECS,
}


def register(type_: str, spec: Spec) -> None:
    """Say how a resource type is created; a type that is known already is created so from now on.

    Example::

        register(
            "aws:kinesis/stream:Stream",
            Spec("kinesis.create_stream", "=StreamName", rename={"name": "StreamName"}, autoname="name"),
        )

    Args:
        type_: Pulumi's type token.
        spec: the boto3 operation that creates it, and where inputs and AWS's names differ.

    Raises:
        LocalCloudError: ``type_`` is no type token.
    """
    if type_.count(":") != 2:
        raise LocalCloudError(f"type {type_!r}: a token such as aws:kinesis/stream:Stream is needed")
    SPECS[type_] = spec
