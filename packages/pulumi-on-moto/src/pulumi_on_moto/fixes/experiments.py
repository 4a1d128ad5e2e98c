"""AWS FIS experiments that interrupt Spot instances.

Sources: FIS user guide, "Actions reference" (aws:ec2:send-spot-instance-interruptions: a duration in ISO 8601
from two to 15 minutes, notices, permissions), "Targets" (COUNT chooses at random; an experiment with an empty
target fails), "Quotas" (by default five Spot instances per experiment if tags choose them; Service Quotas
L-F3F4B54A).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any, Final

from moto.ec2.models import ec2_backends
from moto.fis.models import Experiment, FISBackend
from moto.moto_api._internal import mock_random

from pulumi_on_moto.fixes import Patches, RefusedError, around, local, set_local
from pulumi_on_moto.fixes.simulation import trusted_actions

_ACTION: Final = "aws:ec2:send-spot-instance-interruptions"
_TYPE: Final = "aws:ec2:spot-instance"
_SERVICE: Final = "fis.amazonaws.com"
_INVALID: Final = "ValidationException"
_MAX_TARGETS: Final = 5
_NUMBER: Final = r"([0-9]{1,9}(?:[.,][0-9]{1,9})?)"
_DURATION: Final = re.compile(
    rf"P(?:{_NUMBER}W|(?=.)(?:{_NUMBER}D)?(?:T(?=.)(?:{_NUMBER}H)?(?:{_NUMBER}M)?(?:{_NUMBER}S)?)?)"
)
_UNITS: Final = (604_800, 86_400, 3_600, 60, 1)

Listener = Callable[[list[str]], None]


def listen(backend: FISBackend, listener: Listener) -> None:
    """Call ``listener(instance_ids)`` when an experiment interrupts Spot instances."""
    set_local(backend, "listener", listener)


def seconds(duration: str) -> float:
    """Return the seconds of an ISO 8601 duration, NaN if it is invalid.

    Units are days to seconds, the smallest may have a fraction; years and months have no fixed length.
    """
    match = _DURATION.fullmatch(duration)
    parts = [text for text in match.groups() if text] if match is not None else []
    if match is None or not parts or any(not part.isdecimal() for part in parts[:-1]):
        return math.nan
    return sum(
        float((text or "0").replace(",", ".")) * unit
        for text, unit in zip(match.groups(), _UNITS, strict=True)
    )


def _create(create: Callable[..., Any], backend: FISBackend, **arguments: Any) -> Any:
    if not trusted_actions(backend.account_id, arguments["role_arn"], _SERVICE):
        raise RefusedError(
            _INVALID, f"Role {arguments['role_arn']} does not exist, or does not trust {_SERVICE}."
        )
    for name, action in arguments["actions"].items():
        if action["actionId"] != _ACTION:
            raise RefusedError(_INVALID, f"Action {name}: {action['actionId']} is not emulated locally.")
        before = action.get("parameters", {}).get("durationBeforeInterruption", "")
        if not 120 <= seconds(before) <= 900:
            raise RefusedError(
                _INVALID, f"durationBeforeInterruption must be from PT2M to PT15M (ISO 8601), not {before!r}."
            )
        for target in action.get("targets", {}).values():
            if (arguments["targets"] or {}).get(target, {}).get("resourceType") != _TYPE:
                raise RefusedError(_INVALID, f"Target {target} of {_ACTION} must be of type {_TYPE}.")
    return create(backend, **arguments)


def _start(start: Callable[..., Any], backend: FISBackend, **arguments: Any) -> dict[str, Any]:
    response = start(backend, **arguments)
    experiment = backend.experiments[response["id"]]
    chosen = [instance for target in experiment.targets.values() for instance in _chosen(backend, target)]
    if not chosen or len(chosen) > _MAX_TARGETS:
        experiment.status = "failed"
    elif listener := local(backend, "listener"):
        listener(chosen)
    return {**response, **experiment.to_dict(tags=arguments.get("tags") or {})}


def _chosen(backend: FISBackend, target: dict[str, Any]) -> list[str]:
    """Return the ids of the running Spot instances that a target selects, by tags and at random."""
    ec2 = ec2_backends[backend.account_id][backend.region_name]
    tags = set((target.get("resourceTags") or {}).items())
    fitting = sorted(
        instance.id
        for instance in ec2.all_instances()
        if instance.state == "running"
        and instance.lifecycle == "spot"
        and tags <= {(tag["key"], tag["value"]) for tag in instance.get_tags()}
    )
    count = re.fullmatch(r"COUNT\((\d+)\)", target["selectionMode"])
    return mock_random.sample(fitting, min(len(fitting), int(count[1]))) if count else fitting


_REASONS: Final = {
    **Experiment.STATUS_REASONS,
    "failed": "Target resolution returned no or too many resources.",
}

PATCHES: Final[Patches] = (
    around(FISBackend, "create_experiment_template", _create),
    around(FISBackend, "start_experiment", _start),
    (Experiment, "STATUS_REASONS", _REASONS),
)
