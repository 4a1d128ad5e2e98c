"""EC2's request throttling: a token bucket for each API, refilled in simulated time.

EC2 developer guide, "Request throttling for the Amazon EC2 API": every request takes one token of its API's
bucket; without a token it fails with ``RequestLimitExceeded``. Resource token limits are far beyond a group's
needs and are not simulated. Auto Scaling publishes no numbers; its buckets here are EC2's general ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from botocore.exceptions import ClientError

from pulumi_on_moto.running.functions import Call


class TokenBucket(NamedTuple):
    """Maximum size of a bucket, and its refill rate in tokens per second."""

    capacity: float
    refill: float


READING: Final = TokenBucket(100, 20)
UNFILTERED: Final = TokenBucket(50, 10)
"""Bucket of ``_LARGE`` reads without filter and pagination."""
CHANGING: Final = TokenBucket(50, 5)
SERVICE_BUCKETS: Final[Mapping[str, TokenBucket]] = {
    "DescribeSpotFleetInstances": TokenBucket(100, 5),
    "DescribeSpotFleetRequestHistory": TokenBucket(100, 5),
    "DescribeSpotFleetRequests": TokenBucket(50, 3),
    "TerminateInstances": TokenBucket(100, 5),
}
"""The guide's uncategorized actions that functions here call."""
_LARGE: Final = ("DescribeInstances", "DescribeSpotInstanceRequests", "DescribeVolumes")
_CODES: Final = {"ec2": "RequestLimitExceeded", "autoscaling": "Throttling"}
_READS: Final = ("Describe", "List", "Search", "Get")


class Throttle:
    """The buckets of one account; all times are epoch seconds."""

    def __init__(self) -> None:
        self._tokens: dict[tuple[str, str, TokenBucket], tuple[float, float]] = {}
        self._others_until = 0.0

    def occupy(self, end: float) -> None:
        """Let other clients of the account use up all tokens until then."""
        self._others_until = end

    def take(self, call: Call, now: float) -> None:
        """Take a token for a call; raise ``ClientError``, as after the SDK's retries, without one."""
        if call.service not in _CODES:
            return
        bucket = bucket_of(call.operation, call.params)
        key = (call.service, call.operation, bucket)
        tokens, at = self._tokens.get(key, (bucket.capacity, now))
        tokens = min(bucket.capacity, tokens + (now - at) * bucket.refill)
        if now < self._others_until or tokens < 1:
            self._tokens[key] = (0.0 if now < self._others_until else tokens, now)
            message = "Request limit exceeded."
            raise ClientError({"Error": {"Code": _CODES[call.service], "Message": message}}, call.operation)
        self._tokens[key] = (tokens - 1, now)


def bucket_of(operation: str, params: Mapping[str, Any]) -> TokenBucket:
    """Return the bucket of a request."""
    if operation in SERVICE_BUCKETS:
        return SERVICE_BUCKETS[operation]
    if not operation.startswith(_READS):
        return CHANGING
    if operation in _LARGE and not params.get("Filters") and not params.get("MaxResults"):
        return UNFILTERED
    return READING
