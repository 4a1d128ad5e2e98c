"""Lookup of an access key's account without an IAM backend with all managed policies per partition."""

from __future__ import annotations

from typing import Final

from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.iam import models

from pulumi_on_moto.fixes.fix import Patch


def _account_of(access_key: str) -> str:
    for account_id, partitions in list(models.iam_backends.items()):
        if any(access_key in backend.access_keys for backend in list(partitions.values())):
            return account_id
    return DEFAULT_ACCOUNT_ID


ACCOUNT: Final[Patch] = (models, "get_account_id_from", _account_of)
