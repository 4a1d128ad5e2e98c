"""Stop, resume and retry a job: each looks first, may be repeated, and changes only what people own.

``finished`` names the run that counts as ended. The job writes it at its own end; here it is written to stop
a run, and set back. The job table's ``state`` is the job's own; only a failed one is taken away, by who lets
it begin again.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

from contracts import codec, names
from gpu_spot.jobs.observed import JobObserved, experiment_of
from gpu_spot.jobs.reader import JobError, JobReader
from gpu_spot.jobs.status import PAUSED, standing

NOBODY: Final = "none"
"""What ``finished`` says while no run has ended."""


class Steering:
    """Acts on the jobs of one stack that ``reader`` sees; each method returns what was done, in a line."""

    def __init__(self, clients: Callable[[str], Any], stack: str, reader: JobReader) -> None:
        self._clients = clients
        self._stack = stack
        self._reader = reader

    def stop(self, name: str) -> str:
        """End the run without failing it: it saves, gives its volume back, and its capacity goes.

        Raises:
            JobError: there is no such job, or its run has ended by itself.
        """
        seen = self._reader.one(name)
        _check_alone(seen)
        if seen.verdict:
            raise JobError(f"job {name!r}: it is {seen.verdict}, there is nothing to stop")
        if seen.is_stopped:
            return f"{name} is stopped already"
        self._finish(name, seen.run)
        now = standing(seen)
        what = f"{now.host.instance} is told to save, and goes" if now.host else "nothing of it is started"
        return f"stopped {name}: {what}; its volume stays{_beware(seen)}"

    def resume(self, name: str, budget: float | None = None) -> str:
        """Let a stopped run go on from its last checkpoint, with another ``budget`` in US dollars if given.

        Raises:
            JobError: there is no such job, its run has ended by itself, or the budget does not let it go on.
        """
        seen = self._reader.one(name)
        _check_alone(seen)
        if seen.verdict:
            other = "`gpu-spot jobs retry`" if seen.verdict == "failed" else "a new revision"
            raise JobError(f"job {name!r}: it is {seen.verdict}, not stopped; {other} lets it begin again")
        self._check_budget(name, seen, budget)
        if budget is not None:
            self._allow(name, budget)
        if not (seen.is_stopped or seen.is_held):
            more = "" if budget is None else f", with a budget of ${budget:,.2f} from now on"
            return f"{name} is not stopped, it is {standing(seen).phase}{more}"
        self._finish(name, NOBODY)
        return f"resumed {name}: an instance is asked for{_beware(seen)}"

    def _check_budget(self, name: str, seen: JobObserved, budget: float | None) -> None:
        if budget is None:
            if seen.is_held:
                raise JobError(
                    f"job {name!r}: its budget of ${seen.budget:,.2f} is spent, allowed: --budget above "
                    f"{seen.spent:.2f}"
                )
        elif not seen.budget:
            raise JobError(f"job {name!r}: it has no budget; training[].budget gives it one")
        elif budget <= seen.spent:
            raise JobError(f"job {name!r}: --budget {budget:g}, allowed: above the {seen.spent:.2f} spent")

    def _allow(self, name: str, budget: float) -> None:
        """Set the budget by hand, beside what people have set there: it comes before the stack file's."""
        parameter = names.group_parameter(self._stack, name, names.PARAMETER_CONTROL)
        ssm = self._clients("ssm")
        try:
            told = codec.decode_object(ssm.get_parameter(Name=parameter)["Parameter"]["Value"])
        except ValueError as error:
            raise JobError(f"parameter {parameter}: {error}") from None
        value = json.dumps({**told, "budget": budget})
        ssm.put_parameter(Name=parameter, Value=value, Type="String", Overwrite=True)

    def retry(self, name: str) -> str:
        """Let a failed run begin again from its last checkpoint, with nothing counted against it.

        Of a group of experiments those that have failed.

        The verdict goes first: were it the other way round, a new instance could find it and end at once.
        Broken off in between the run is stopped, and ``resume`` lets it go on.

        Raises:
            JobError: there is no such job, or it has not failed.
        """
        seen = self._reader.one(name)
        if seen.verdict == "done":
            raise JobError(f"job {name!r}: it is done; a new revision runs again")
        if not seen.verdict:
            if seen.is_stopped:
                raise JobError(
                    f"job {name!r}: it is stopped, not failed; `gpu-spot jobs resume` lets it go on"
                )
            return f"{name} has not failed, it is {standing(seen).phase}"
        for one in seen.experiments:
            again = experiment_of(seen, one)
            if again.verdict == "failed":
                self._take_back(one, again)
        if seen.group:  # its group may have ended without it
            group = self._reader.one(seen.group)
            if group.verdict == "failed":
                self._take_back(seen.group, group)
        self._take_back(name, seen)
        self._finish(seen.group or name, NOBODY)
        times = _ordinal(seen.row.retries_of(seen.run) + 1)
        return f"{name} begins again, for the {times} time{_beware(seen)}"

    def _take_back(self, name: str, seen: JobObserved) -> None:
        dynamodb = self._clients("dynamodb")
        told = {"revision": {"S": seen.run}, "count": {"N": str(seen.row.retries_of(seen.run) + 1)}}
        try:
            dynamodb.update_item(
                TableName=self._reader.tables.jobs,
                Key={"job": {"S": name}},
                UpdateExpression="SET retries = :told REMOVE #state, #reason, hostFaults",
                ConditionExpression="#state = :failed AND revision = :run",
                ExpressionAttributeNames={"#state": "state", "#reason": "reason"},
                ExpressionAttributeValues={
                    ":told": {"M": told},
                    ":failed": {"S": "failed"},
                    ":run": {"S": seen.run},
                },
            )
        except dynamodb.exceptions.ConditionalCheckFailedException:
            raise JobError(f"job {name!r}: somebody else has just changed it; look again") from None

    def _finish(self, name: str, run: str) -> None:
        parameter = names.group_parameter(self._stack, name, names.PARAMETER_FINISHED)
        self._clients("ssm").put_parameter(Name=parameter, Value=run, Type="String", Overwrite=True)


def _check_alone(seen: JobObserved) -> None:
    if seen.group:
        raise JobError(f"job {seen.name!r}: it shares the instances of {seen.group!r}, allowed: that one")


def _beware(seen: JobObserved) -> str:
    return (
        f" (the controller is {seen.mode}: nothing follows until people set it back)"
        if (seen.mode in PAUSED)
        else ""
    )


def _ordinal(number: int) -> str:
    last = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{'th' if number % 100 in (11, 12, 13) else last}"
