"""Lambda entry point that maintains the users of the stack's brokers.

A schedule invokes it each minute. A person rotates passwords at once with the event
``{"rotate": ["ocr.workers", "administrator"]}``.
"""

from __future__ import annotations

import os
import time
from functools import cache
from typing import Final

from aws_lambda_powertools import Logger

from contracts import broker_users, names
from lambdas.aws.queues.broker_users import BrokerUserManager
from lambdas.handlers.runtime import LambdaContext, client

_SPARE_SECONDS: Final = 8.0
"""Part of the function's timeout that is reserved for AWS calls that hang at the end."""

logger = Logger(service="gpu-spot-broker-users")


def handler(event: object, context: LambdaContext) -> None:
    """Create and rotate users; raise ``RuntimeError`` after the others if a broker rejects something."""
    names_to_rotate = event.get(broker_users.ROTATE, ()) if isinstance(event, dict) else ()
    errors = _manager().run(
        broker_users.parse(os.environ[names.ENV_BROKERS]),
        frozenset(map(str, names_to_rotate)),
        context.get_remaining_time_in_millis() / 1000 - _SPARE_SECONDS,
    )
    for error in errors:
        logger.error("broker users incomplete", extra={"reason": error})
    if errors:
        raise RuntimeError(errors[0])


@cache
def _manager() -> BrokerUserManager:
    return BrokerUserManager(client("secretsmanager"), time.time)
