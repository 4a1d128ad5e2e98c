"""The sandbox: moto answers all AWS calls of this process; none reaches AWS."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any, Final

import boto3
from botocore.client import BaseClient
from botocore.config import Config
from moto import mock_aws
from moto.core.botocore_stubber import BotocoreStubber
from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.moto_api._internal import mock_random

from pulumi_on_moto.errors import LocalCloudError
from pulumi_on_moto.fixes import around, parameters, patched
from pulumi_on_moto.fixes.everything import FIXES, SPEED_UPS
from pulumi_on_moto.fixes.speedups import cached_responses

ACCOUNT: Final = DEFAULT_ACCOUNT_ID

_active = False


def _guarded(process: Callable[..., Any], stubber: BotocoreStubber, request: Any) -> Any:
    """Return moto's response; raise an error for requests that it would pass to the network."""
    response = process(stubber, request)
    if response is None and "://127.0.0.1:" not in request.url:
        raise LocalCloudError(f"not emulated locally: {request.method} {request.url.partition('?')[0]}")
    return response


class AwsClients:
    """boto3 clients of one region, each created once and shared between threads.

    Attributes:
        region: the AWS region.
        closing: an exit stack that is closed with the sandbox.
        refused: calls with values that AWS's models forbid, one line each. The sandbox ends with an error
        unless the list is empty; a test that expects one clears the list.
    """

    def __init__(self, region: str, closing: contextlib.ExitStack) -> None:
        self.region = region
        self.closing = closing
        self.refused = parameters.REFUSED
        self._session = boto3.session.Session(region_name=region)
        self._clients: dict[str, BaseClient] = {}
        self._lock = threading.Lock()

    def __call__(self, service: str) -> Any:
        """Return the client of a service."""
        with self._lock:
            if service not in self._clients:
                config = Config(parameter_validation=True, retries={"max_attempts": 1})
                self._clients[service] = self._session.client(service, config=config)  # type: ignore[call-overload]
            return self._clients[service]


@contextlib.contextmanager
def sandbox(region: str, seed: int = 0) -> Iterator[AwsClients]:
    """Run the body with an empty moto that answers every AWS call of this process.

    Credentials are moto's fake ones; a request that moto does not answer raises ``LocalCloudError``. Ids are
    generated from ``seed``.

    Raises:
        LocalCloudError: at the end, if AWS would have rejected a call whose error the code ignored.
    """
    global _active  # a process has one moto, so one sandbox
    if _active:
        raise LocalCloudError("a local cloud is already running in this process")
    _active = True
    cached_responses.forget()
    parameters.REFUSED.clear()
    try:
        with (
            patched((*FIXES, *SPEED_UPS)),  # also while moto resets at the end
            mock_aws(config={"iam": {"load_aws_managed_policies": True}}),
            patched([around(BotocoreStubber, "process_request", _guarded)]),
            contextlib.ExitStack() as closing,
        ):
            mock_random.seed(seed)
            yield AwsClients(region, closing)
    finally:
        _active = False
    if parameters.REFUSED:
        more = f" (and {len(parameters.REFUSED) - 1} more calls)" if parameters.REFUSED[1:] else ""
        raise LocalCloudError(f"{parameters.REFUSED[0]}{more}")
