"""What the rules ask of the world: the time, when an image was made, what an instance costs."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache
from typing import Any, TypeAlias

import boto3
from botocore.exceptions import BotoCoreError, ClientError

from infra.catalogue import on_demand_prices
from policy.rules.model import Outside

MakeClient: TypeAlias = Callable[..., Any]
"""``boto3.client``, or what stands in its place."""


def facts(now: datetime | None = None, client: MakeClient = boto3.client) -> Outside:
    """Return the facts as they are now; EC2 is asked for each image once, and only if there is one."""

    @cache
    def image_made(image: str, region: str) -> datetime | None:
        try:
            found = client("ec2", region_name=region or None).describe_images(ImageIds=[image])["Images"]
            return datetime.fromisoformat(found[0]["CreationDate"]).astimezone(UTC) if found else None
        except (BotoCoreError, ClientError, ValueError):
            return None  # without credentials nobody can tell

    return Outside(now or datetime.now(UTC), image_made, on_demand_prices.price)
