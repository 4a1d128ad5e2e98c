"""Reads the external facts of the rules: the time, creation times of images, prices, the own account."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache
from typing import Any, TypeAlias

import boto3
from botocore.exceptions import BotoCoreError, ClientError

from infra.catalogue import on_demand_prices
from policy.rules.model import ExternalFacts

ClientFactory: TypeAlias = Callable[..., Any]
"""``boto3.client``, or a double."""


def read(now: datetime | None = None, client: ClientFactory = boto3.client) -> ExternalFacts:
    """Return the current facts; each image is described once, when a rule needs it."""

    @cache
    def image_created_at(image: str, region: str) -> datetime | None:
        try:
            images = client("ec2", region_name=region or None).describe_images(ImageIds=[image])["Images"]
            return datetime.fromisoformat(images[0]["CreationDate"]).astimezone(UTC) if images else None
        except (BotoCoreError, ClientError, ValueError):
            return None  # no credentials

    @cache
    def account(profile: str, region: str) -> str:
        try:
            chosen = client if not profile else boto3.Session(profile_name=profile).client
            return str(chosen("sts", region_name=region or None).get_caller_identity()["Account"])
        except (BotoCoreError, ClientError):
            return ""  # no credentials

    return ExternalFacts(now or datetime.now(UTC), image_created_at, on_demand_prices.price, account)
