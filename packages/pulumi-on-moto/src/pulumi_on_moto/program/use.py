"""Operations on a deployment: invoke functions, deliver events."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

from pulumi_on_moto.errors import LocalCloudError
from pulumi_on_moto.program.record import Deployment
from pulumi_on_moto.running.functions import Invocation

_NEEDED: Final = ("source", "detail-type", "detail")


def invoke(deployment: Deployment, function: str, payload: Any = None) -> Invocation:
    """Run a deployed function from its archive and return its result, its log and its error.

    ``function``: its logical name, as the program calls it; ``payload``: a JSON value.

    Raises:
        LocalCloudError: there is no such function.
    """
    resource = deployment.resource("aws:lambda/function:Function", function)
    return deployment.functions.invoke(resource.id, payload)


def deliver(deployment: Deployment, event: Mapping[str, Any]) -> tuple[Invocation, ...]:
    """Deliver an event by the matching deployed rules to queues and functions, which then run.

    Functions run until no event or message waits; messages that they send are delivered, too.

    ``event``: of EventBridge, with ``source``, ``detail-type`` and ``detail``; the rest is filled in. Returns
    the runs of functions in order.

    Raises:
        LocalCloudError: the event lacks a field, or a target is invalid: it does not exist, its policy does
        not allow the rule, or it is neither a queue nor a function.
    """
    for key in _NEEDED:
        if key not in event:
            raise LocalCloudError(f"event: {key!r} is missing; {', '.join(_NEEDED)} are needed")
    envelope = deployment.bus.event(event["detail-type"], event["source"], event["detail"], time.time(), [])
    deployment.bus.publish({**envelope, **event})
    return tuple(deployment.functions.run())


def tick(deployment: Deployment) -> tuple[Invocation, ...]:
    """Fire every scheduled rule once; return the runs of functions, as ``deliver`` does."""
    deployment.bus.tick(time.time())
    return tuple(deployment.functions.run())
