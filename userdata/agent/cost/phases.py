"""The phases of an instance's time with a job, and the steps that were done again; pure.

What was not recorded stays together with its neighbor: "boot or data", "training or saving".
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from contracts.jobs.attempt import JobAttempt

RunPhase: TypeAlias = Literal[
    "boot", "boot or data", "data", "training", "training or saving", "saving", "export"
]
PHASES: Final[tuple[RunPhase, ...]] = (
    "boot",
    "boot or data",
    "data",
    "training",
    "training or saving",
    "saving",
    "export",
)
"""In order of time."""


def split(part: JobAttempt, end: float) -> dict[RunPhase, float]:
    """Return the seconds of each phase from the launch until ``end`` (epoch seconds); they sum up to it.

    ``boot``: until the agent asks for the job. ``data``: lease, volume, dataset, code and environment, until
    the command starts. ``saving``: pauses for saves. ``export``: from the last step to the job's release.
    """
    end = max(end, part.launched)

    def within(at: float, begin: float) -> float:
        return min(max(at, begin), end)

    phases: dict[RunPhase, float] = {}
    booted = within(part.booted, part.launched)
    started = within(part.started, booted) if part.starts else end
    if part.booted:
        phases |= {"boot": booted - part.launched, "data": started - booted}
    else:
        phases["boot or data"] = started - part.launched
    if part.starts:
        stopped = part.exporting or part.stopped or end
        trained = within(stopped, started)
        phases["export"] = end - trained
        if part.saving is None:
            phases["training or saving"] = trained - started
        else:
            saving = min(max(part.saving, 0.0), trained - started)
            phases |= {"training": trained - started - saving, "saving": saving}
    return {phase: phases[phase] for phase in PHASES if phases.get(phase)}


def steps_again(part: JobAttempt, following: JobAttempt) -> int | None:
    """Return the steps that ``following`` does again; None if one of both reported none.

    Steps after the last report before a loss are missing: up to a minute of work.
    """
    if part.step is None or following.first_step is None:
        return None
    return max(0, part.step - following.first_step)


def sum_of_saving(first: float | None, second: float | None) -> float | None:
    """Return the sum of two records of saving; None if one is unknown."""
    return None if first is None or second is None else first + second
