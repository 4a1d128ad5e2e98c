"""Values that a trial of a study reports while it trains."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Final

from spot_training.errors import ReportError

REPORTS_VARIABLE: Final = "GPU_SPOT_REPORTS"
_RANK_VARIABLES: Final = ("RANK", "LOCAL_RANK")


def report(metric: float, step: int, *, environment: Mapping[str, str] | None = None) -> None:
    """Report the value of the study's metric after ``step`` steps, such as epochs.

    The study compares trials by it, and may end this one at a later moment with SIGTERM, as for an
    interruption. Report before the checkpoint of the same step is saved: then no value is missing after a
    lost instance. A step that a resumed training repeats may be reported again; its first value counts.
    Without ``$GPU_SPOT_REPORTS``, and in ranks other than 0, it does nothing.

    Args:
        metric: a number or a tensor of one; NaN counts as the worst value.
        step: a whole number that grows, from 1.
        environment: variables; by default those of the process.

    Raises:
        ReportError: ``step`` is not such a number, or the value cannot be stored.
    """
    environment = os.environ if environment is None else environment
    if int(step) != step or step < 0:
        raise ReportError(f"step {step}; allowed: a whole number of 0 or more")
    line = json.dumps([int(step), float(metric)]) + "\n"
    path = environment.get(REPORTS_VARIABLE)
    if not path or any(environment.get(name, "0") != "0" for name in _RANK_VARIABLES):
        return
    try:
        file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            # A line that a killed process did not complete ends here.
            os.write(file, b"\n" + line.encode())
            os.fsync(file)
        finally:
            os.close(file)
    except OSError as error:
        raise ReportError(f"{path}: {error.strerror or error}") from None
