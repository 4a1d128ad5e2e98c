"""Changes a group's ``control`` parameter, which holds what people set."""

from __future__ import annotations

import json
from typing import Any

from contracts import codec, names
from contracts.group.hourly_budget import MAX_RELEASE_HOURS, BudgetRelease
from contracts.stored import ContractError
from gpu_spot.text import clock
from lambdas.aws import settings


def update_control(ssm: Any, stack: str, group: str, changes: dict[str, Any]) -> None:
    """Set keys of the parameter and leave the others; ``None`` removes a key.

    Raises:
        ValueError: the parameter holds no JSON object.
    """
    parameter = names.group_parameter(stack, group, names.PARAMETER_CONTROL)
    try:
        control = codec.decode_object(ssm.get_parameter(Name=parameter)["Parameter"]["Value"])
    except ValueError as error:
        raise ValueError(f"parameter {parameter}: {error}") from None
    changed = {key: value for key, value in {**control, **changes}.items() if value is not None}
    ssm.put_parameter(Name=parameter, Value=json.dumps(changed), Type="String", Overwrite=True)


def release_budget(ssm: Any, stack: str, group: str, hours: float, reason: str, now: float) -> str:
    """Release a group's hourly budget from ``now`` on for some hours, or end its release with 0.

    Returns:
        What was done, in one line.

    Raises:
        ValueError: the group does not exist or has no hourly budget, or an option is invalid.
    """
    release = _release(hours, reason, now)
    groups, errors = settings.read(ssm, names.parameter_root(stack))
    if group in errors:
        raise ValueError(str(errors[group]))
    if group not in groups:
        listed = ", ".join(sorted({*groups, *errors})) or "none"
        raise ValueError(f"--group is {group!r}, allowed for stack {stack!r}: {listed}")
    if groups[group].group.hourly_budget is None:
        raise ValueError(f"group {group!r} has no capacity.budget in the stack file")
    stored = None if release is None else codec.dump(release)
    update_control(ssm, stack, group, {"budgetRelease": stored})
    if release is None:
        return f"the hourly budget of {group} applies again"
    return f"the hourly budget of {group} is released until {clock(release.ends_at)} UTC"


def _release(hours: float, reason: str, now: float) -> BudgetRelease | None:
    """Return the release that the options describe; ``None`` to end one."""
    if not 0 <= hours <= MAX_RELEASE_HOURS:
        raise ValueError(f"--hours is {hours:g}, allowed: 0 to {MAX_RELEASE_HOURS}")
    if hours == 0:
        return None
    try:
        return codec.parse(BudgetRelease, {"startsAt": now, "endsAt": now + 3600 * hours, "reason": reason})
    except ContractError as error:
        raise ValueError(f"--{error}") from None
