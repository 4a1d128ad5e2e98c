"""Bucket policies that require TLS: every call here counts as encrypted."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

from moto.iam.access_control import PermissionResult
from moto.s3.models import FakeBucket

from pulumi_on_moto.fixes.fix import Fix

_PLAIN_TEXT: Final = {"Bool": {"aws:SecureTransport": "false"}}


def _regarding_tls(permission: Callable[..., Any]) -> Callable[..., Any]:
    def regarded(bucket: FakeBucket, action: str, resource: str) -> Any:
        if bucket.policy is None:
            return PermissionResult.NEUTRAL
        whole = bucket.policy
        policy = json.loads(whole)
        policy["Statement"] = [s for s in policy["Statement"] if s.get("Condition") != _PLAIN_TEXT]
        bucket.policy = json.dumps(policy).encode()
        try:
            return permission(bucket, action, resource)
        finally:
            bucket.policy = whole

    return regarded


PLAIN_TEXT: Final = Fix(
    "buckets that refuse plain text",
    moto="reads no conditions in bucket policies, so a Deny of plain text refuses everybody",
    aws="refuses plain text only; here every call counts as encrypted",
    patches=((FakeBucket, "get_permission", _regarding_tls(FakeBucket.get_permission)),),
)
