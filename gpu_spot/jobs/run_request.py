"""``gpu-spot jobs run``: request a run of a job with a schedule, as its schedule does."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final

from contracts import codec, names
from contracts.jobs import run as job_run
from contracts.jobs.run import RunRequest
from contracts.stored import ContractError
from gpu_spot.jobs.reader import JobError
from gpu_spot.jobs.snapshot import JobSnapshot
from infra.schema.access import looks_like_a_key

_MAX_BYTES: Final = 3584
"""Of 4,096 in a standard parameter (Systems Manager user guide, "Parameter tiers"): the run's has more."""


def request_run(ssm: Any, stack: str, snapshot: JobSnapshot, changes: Iterable[str] = ()) -> str:
    """Request a run now, with changed variables and arguments; return what happens.

    Raises:
        JobError: the job has no schedule, a change is invalid, or the request would start nothing.
    """
    name, state = snapshot.name, snapshot.run_state
    if snapshot.runs is None or state is None:
        raise JobError(
            f"job {name!r} has no schedule, so its revision is its only run; set training[].schedule ({{}} "
            "if only people start runs), or deploy a new revision"
        )
    pending = snapshot.pending
    if before := pending.get(names.PARAMETER_REQUEST):
        raise JobError(f"job {name!r}: a run was requested for {before} and has not begun; one waits at most")
    scheduled = pending.get(names.PARAMETER_FIRING)
    if scheduled and snapshot.runs.overlap == "skip":
        raise JobError(
            f"job {name!r}: the schedule's run of {scheduled} is about to begin and schedule.overlap is skip"
        )
    is_running = snapshot.is_in_progress
    if is_running and snapshot.runs.overlap == "skip":
        raise JobError(
            f"job {name!r}: run {snapshot.run} has not ended and schedule.overlap is skip; wait, or end it "
            "with `gpu-spot jobs stop`"
        )
    # Later than all requests before it: an older one is not seen.
    time = job_run.time_of(snapshot.now)
    if time <= (newest := max(state.newest, scheduled or "")):
        raise JobError(f"job {name!r}: a run was requested for {newest}; try again in a minute")
    request = _request(time, changes)
    text = json.dumps(codec.dump(request))
    if len(text.encode()) > _MAX_BYTES:
        raise JobError(f"--set: the request has {len(text.encode())} bytes; at most {_MAX_BYTES} fit")
    parameter = names.group_parameter(stack, name, names.PARAMETER_REQUEST)
    ssm.put_parameter(Name=parameter, Value=text, Type="String", Overwrite=True)
    when = f"once {snapshot.run} has ended" if is_running else "within two minutes"
    when = f"after the schedule's run of {scheduled}" if scheduled else when
    return f"requested run {job_run.folder(time)} of {name}: an instance is requested {when}"


def _request(time: str, changes: Iterable[str]) -> RunRequest:
    environment: dict[str, str] = {}
    arguments: list[str] = []
    for change in changes:
        name, separator, value = change.partition("=")
        if not separator:
            raise JobError(f"--set {change}: write NAME=value (a variable) or --name=value (an argument)")
        if looks_like_a_key(name.lstrip("-"), value):
            raise JobError(f"--set {name}: it looks like a key; name a secret in training[].secrets")
        if name.startswith("--"):
            arguments.append(change)
        else:
            environment[name] = value
    try:
        return codec.parse(RunRequest, {"time": time, "environment": environment, "arguments": arguments})
    except ContractError as error:
        raise JobError(f"--set: {error}") from None
