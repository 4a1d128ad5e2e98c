"""The worker registry in moto."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import boto3

from tests import models

TABLE = "registry"


@contextmanager
def registry() -> Iterator[Any]:
    """Open a sandbox with an empty registry in it, and give a client."""
    with models.moto():
        client = boto3.client("dynamodb", region_name="us-west-2")
        client.create_table(
            TableName=TABLE,
            BillingMode="PAY_PER_REQUEST",
            KeySchema=[
                {"AttributeName": "group", "KeyType": "HASH"},
                {"AttributeName": "worker", "KeyType": "RANGE"},
            ],
            AttributeDefinitions=[
                {"AttributeName": "group", "AttributeType": "S"},
                {"AttributeName": "worker", "AttributeType": "S"},
            ],
        )
        yield client
