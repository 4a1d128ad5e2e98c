"""Stop, resume and retry a job. Each action is idempotent and changes only what users own.

The parameter ``finished`` names the run that counts as finished. The job writes it when it finishes; ``stop``
writes it to stop a run, and ``resume`` resets it. The ``state`` in the job table belongs to the job; only
``retry`` removes a failed state.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Final

from contracts import codec, names
from gpu_spot.jobs.reader import JobError, JobReader
from gpu_spot.jobs.run_request import request_run
from gpu_spot.jobs.snapshot import JobSnapshot, experiment_of
from gpu_spot.jobs.status import PASSIVE_MODES, job_status

NOT_FINISHED: Final = "none"
"""Value of ``finished`` while no run has finished."""


class JobControl:
    """Stops, resumes and retries the jobs of one stack. Each method returns a one-line message."""

    def __init__(self, clients: Callable[[str], Any], stack: str, reader: JobReader) -> None:
        self._clients = clients
        self._stack = stack
        self._reader = reader

    def stop(self, name: str) -> str:
        """Stop a run without failing it: it saves, releases its volume and its capacity.

        Raises:
            JobError: the job does not exist, or its run has finished.
        """
        snapshot = self._reader.read(name)
        _check_not_experiment(snapshot)
        if snapshot.outcome:
            raise JobError(f"job {name!r} is {snapshot.outcome} and cannot be stopped")
        if snapshot.is_stopped:
            return f"{name} is already stopped"
        self._set_finished(name, snapshot.run)
        status = job_status(snapshot)
        effect = (
            f"{status.host.instance} saves a checkpoint and terminates"
            if status.host
            else "no instance runs it"
        )
        return f"stopped {name}: {effect}; its volume is kept{_mode_note(snapshot)}"

    def resume(self, name: str, budget: float | None = None) -> str:
        """Resume a stopped run from its last checkpoint, with a new ``budget`` in US dollars if given.

        Raises:
            JobError: the job does not exist, its run has finished, or the budget is too low.
        """
        snapshot = self._reader.read(name)
        _check_not_experiment(snapshot)
        if snapshot.outcome:
            action = "`gpu-spot jobs retry`" if snapshot.outcome == "failed" else snapshot.way_to_repeat
            raise JobError(f"job {name!r} is {snapshot.outcome}, not stopped; use {action} to run it again")
        self._check_budget(name, snapshot, budget)
        if budget is not None:
            self._set_budget(name, budget)
        if not (snapshot.is_stopped or snapshot.is_over_budget):
            more = "" if budget is None else f", with a new budget of ${budget:,.2f}"
            return f"{name} is not stopped but {job_status(snapshot).phase}{more}"
        self._set_finished(name, NOT_FINISHED)
        return f"resumed {name}: an instance is requested{_mode_note(snapshot)}"

    def _check_budget(self, name: str, snapshot: JobSnapshot, budget: float | None) -> None:
        if budget is None:
            if snapshot.is_over_budget:
                raise JobError(
                    f"the budget of job {name!r}, ${snapshot.budget:,.2f}, is spent; set --budget above "
                    f"{snapshot.spent:.2f}"
                )
        elif not snapshot.budget:
            raise JobError(f"job {name!r} has no budget; set training[].budget in the stack file")
        elif budget <= snapshot.spent:
            raise JobError(
                f"job {name!r}: --budget must be above {snapshot.spent:.2f}, which is already spent, "
                f"not {budget:g}"
            )

    def _set_budget(self, name: str, budget: float) -> None:
        """Set the budget in the control parameter, where it overrides the stack file's."""
        ssm = self._clients("ssm")
        parameter = names.group_parameter(self._stack, name, names.PARAMETER_CONTROL)
        try:
            control = codec.decode_object(ssm.get_parameter(Name=parameter)["Parameter"]["Value"])
        except ValueError as error:
            raise JobError(f"parameter {parameter}: {error}") from None
        text = json.dumps({**control, "budget": budget})
        ssm.put_parameter(Name=parameter, Value=text, Type="String", Overwrite=True)

    def run(self, name: str, changes: Sequence[str] = ()) -> str:
        """Start a run of a job with a schedule now, with changed variables and arguments.

        Raises:
            JobError: the job does not exist or has no schedule, or the request would start nothing.
        """
        snapshot = self._reader.read(name)
        _check_not_experiment(snapshot)
        message = request_run(self._clients("ssm"), self._stack, snapshot, changes)
        return f"{message}{_mode_note(snapshot)}"

    def retry(self, name: str) -> str:
        """Restart a failed run from its last checkpoint and reset its failure counters.

        For a group of experiments, restart those that failed. The failed state is removed first: in the other
        order a new instance could still find it and exit. If interrupted in between, the run is stopped and
        ``resume`` continues it.

        Raises:
            JobError: the job does not exist, or has not failed.
        """
        snapshot = self._reader.read(name)
        if snapshot.outcome == "done":
            verb = "deploy" if snapshot.runs is None else "use"
            raise JobError(f"job {name!r} is done; {verb} {snapshot.way_to_repeat} to run it again")
        if not snapshot.outcome:
            if snapshot.is_stopped:
                raise JobError(f"job {name!r} is stopped, not failed; use `gpu-spot jobs resume`")
            return f"{name} has not failed but is {job_status(snapshot).phase}"
        for experiment_name in snapshot.experiments:
            experiment = experiment_of(snapshot, experiment_name)
            if experiment.outcome == "failed":
                self._clear_failure(experiment_name, experiment)
        if snapshot.group:  # the group may have failed without it
            group = self._reader.read(snapshot.group)
            if group.outcome == "failed":
                self._clear_failure(snapshot.group, group)
        self._clear_failure(name, snapshot)
        self._set_finished(snapshot.group or name, NOT_FINISHED)
        times = snapshot.row.retries_of(snapshot.run) + 1
        return f"{name} restarts, retry number {times}{_mode_note(snapshot)}"

    def _clear_failure(self, name: str, snapshot: JobSnapshot) -> None:
        dynamodb = self._clients("dynamodb")
        retries = {
            "revision": {"S": snapshot.run},
            "count": {"N": str(snapshot.row.retries_of(snapshot.run) + 1)},
        }
        try:
            dynamodb.update_item(
                TableName=self._reader.tables.jobs,
                Key={"job": {"S": name}},
                UpdateExpression="SET retries = :retries REMOVE #state, #reason, hostFaults",
                ConditionExpression="#state = :failed AND revision = :run",
                ExpressionAttributeNames={"#state": "state", "#reason": "reason"},
                ExpressionAttributeValues={
                    ":retries": {"M": retries},
                    ":failed": {"S": "failed"},
                    ":run": {"S": snapshot.run},
                },
            )
        except dynamodb.exceptions.ConditionalCheckFailedException:
            raise JobError(f"job {name!r} was changed concurrently; check its state and retry") from None

    def _set_finished(self, name: str, run: str) -> None:
        parameter = names.group_parameter(self._stack, name, names.PARAMETER_FINISHED)
        self._clients("ssm").put_parameter(Name=parameter, Value=run, Type="String", Overwrite=True)


def _check_not_experiment(snapshot: JobSnapshot) -> None:
    if snapshot.group:
        raise JobError(
            f"job {snapshot.name!r} shares the instances of {snapshot.group!r}; use that group's name"
        )


def _mode_note(snapshot: JobSnapshot) -> str:
    return (
        f" (the controller is in mode {snapshot.mode}: no effect until it is automatic again)"
        if snapshot.mode in PASSIVE_MODES
        else ""
    )
