"""Whether exit code 0 of a job's command is its completion: by its own report, not by the exit code alone.

``crash | tee log`` exits with 0: the exit code of a pipeline is that of its last command.
Source: POSIX, Shell Command Language, 2.9.2 Pipelines.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePath
from typing import Final

from userdata.agent.work.worker_report_file import StepsReport

_PIPEFAIL_SHELLS: Final = frozenset({"bash", "ksh", "zsh"})
_OTHER_SHELLS: Final = frozenset({"sh", "ash", "dash"})
_PIPE: Final = re.compile(r"(?<![|>])\|(?!\|)")


def with_pipefail(command: Sequence[str]) -> list[str]:
    """Return the command; ``bash -c "a | b"`` fails if ``a`` does."""
    if _is_one_liner(command, _PIPEFAIL_SHELLS):
        return [command[0], "-o", "pipefail", *command[1:]]
    return list(command)


def find_contradiction(
    command: Sequence[str], report: StepsReport | None, *, has_reported: bool, needs_report: bool = False
) -> str:
    """Return why exit code 0 does not mean that the job is done; an empty string if it does.

    Args:
        command: the job's command.
        report: the report at the command's end; None if there is none.
        has_reported: whether an earlier run of the command reported steps.
        needs_report: whether only a report can say that the job is done: of several nodes one may end early.
    """
    if report is not None:
        if report.error:
            return f"exit code 0, but the training failed: {report.error}"
        if report.is_finished:
            return ""
        if report.steps and report.step < report.steps:
            return (
                f"exit code 0 at step {report.step} of {report.steps}; a script that ends earlier on purpose "
                'reports {"finished": true}'
            )
    elif has_reported:
        return "exit code 0 without a progress report, which earlier runs wrote"
    if needs_report:
        return (
            'exit code 0 of one of several nodes without a report {"finished": true}, which '
            "spot_training.torch.Loop writes"
        )
    if _is_one_liner(command, _OTHER_SHELLS) and _PIPE.search(command[2]):
        return (
            "exit code 0 of a pipe in sh says nothing about its first command; use bash -c, no "
            'pipe, or a report {"finished": true}'
        )
    return ""


def _is_one_liner(command: Sequence[str], shells: frozenset[str]) -> bool:
    return len(command) > 2 and PurePath(command[0]).name in shells and command[1] == "-c"
