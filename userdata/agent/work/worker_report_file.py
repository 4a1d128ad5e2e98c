"""The workload's report file: ``$GPU_SPOT_TELL``, a small JSON file that it replaces at any time.

- ``{"queueDepth": 17}``: waiting tasks.
- ``{"step": 300, "steps": 9000}``: completed and total steps of a training job; at its end with
  ``"finished": true``, or with ``"error"``, the exception that ended it; with ``"saving"``, the seconds for
  which saves have paused it since its start; with ``"rank"``, of all processes of the training the number of
  the one that writes it.
- ``{"done": 700, "failed": 2, "busy": 310.5, "batches": [[4, 60, 210, 61.2, 3]], "batchSize": 16}``: requests
  that a worker completed since its start, those with an error, the seconds in which it had requests, its
  batches by size (`BatchRow`), and the largest batch that it runs; ``"refused": 5``, requests that it did not
  run because they could not meet their deadline; ``"stopped": "1000 replies … wait for the broker: low on
  memory"``, why it takes no requests at present.

Other keys are ignored. The file is not trusted: the reader does not block and reads at most 4 KiB.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final, NamedTuple

from contracts import codec
from contracts.agent.names import READY_DIR
from contracts.registry.batches import MAX_ROWS, BatchRow
from contracts.registry.item import MAX_STEPS
from contracts.registry.worker_report import MAX_STOPPED_LENGTH
from userdata.agent.machine import files, log

FRESH_SECONDS: Final = 120.0
"""Maximum age of a queue depth: twice the period of the metrics."""

_FILE: Final = "tell.json"
_MAX_BYTES: Final = 4096
_REMOVAL_SECONDS: Final = 60.0
_MAX_ERROR_CHARACTERS: Final = 300


def worker_directory(directory: Path, slot: int) -> Path:
    """Return the directory of a slot's worker, the only one of the agent's that the worker may write to."""
    return directory / READY_DIR / str(slot)


def report_path(directory: Path, slot: int) -> Path:
    """Return the report file of a slot's worker."""
    return worker_directory(directory, slot) / _FILE


def create_worker_directory(directory: Path, slot: int) -> None:
    """Create the directory for a starting worker, empty: whatever an earlier one left there is removed."""
    path = worker_directory(directory, slot)
    old = path.with_name(f".{slot}")
    for _ in range(2):  # `old` may be left of an agent that died here
        try:
            shutil.rmtree(old, ignore_errors=not old.exists())
        except (OSError, RecursionError):  # whatever depth a worker has created
            argv = ["rm", "--recursive", "--force", "--one-file-system", str(old)]
            subprocess.run(argv, timeout=_REMOVAL_SECONDS, check=False, stderr=subprocess.DEVNULL)  # noqa: S603
        if path.exists():
            path.rename(old)
    path.mkdir(parents=True)
    path.chmod(0o777)  # the worker may run as any user


class WorkerReportReader:
    """Reads the workers' reports; a malformed file is logged once."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory / READY_DIR
        self._logged: set[Path] = set()

    def queue_depths(self, wall: float) -> tuple[float, ...]:
        """Return the queue depths reported in the last two minutes before ``wall`` (epoch seconds)."""
        depths = []
        for path in sorted(self._directory.glob(f"*/{_FILE}")):
            try:
                depth = _read_queue_depth(path, wall)
            except (OSError, ValueError) as error:
                if path not in self._logged:
                    self._logged.add(path)
                    log.warning("worker report not readable", path=str(path), error=str(error))
                continue
            if depth is not None:
                depths.append(depth)
        return tuple(depths)


def read_steps(path: Path) -> tuple[int, int, float] | None:
    """Return step, total steps and the report's time (epoch seconds); None if there is none.

    Raises:
        ValueError: the report is malformed.
        OSError: the file is not readable.
    """
    try:
        report, written_at = _read(path)
    except FileNotFoundError:
        return None
    step, of = report.get("step"), report.get("steps")
    if step is None and of is None:
        return None
    if type(step) is not int or type(of) is not int or not 0 <= step <= of <= MAX_STEPS or of == 0:
        raise ValueError(
            f"step and steps must be whole numbers, 0 ≤ step ≤ steps; they are {str(step)[:40]} "
            f"and {str(of)[:40]}"
        )
    return step, of, written_at


class StepsReport(NamedTuple):
    """The last report of a job's command; ``steps`` is 0 if the total is not known.

    ``has_step``: it says how many steps are completed. ``saving``: seconds of pauses for saves since the
    command's start; None if it does not say. ``rank``: the number of the process that reports.
    """

    step: int
    steps: int
    is_finished: bool
    error: str
    has_step: bool = True
    saving: float | None = None
    rank: int = 0

    @property
    def is_complete(self) -> bool:
        """Whether no step is left."""
        return self.is_finished or 0 < self.steps <= self.step


def read_job(directory: Path) -> StepsReport | None:
    """Return the job's last report; None if there is none that says anything of its steps or its end."""
    try:
        report, _ = _read(report_path(directory, 0))
    except (OSError, ValueError):
        return None
    if report.keys().isdisjoint(("step", "finished", "error")):
        return None
    step, steps = report.get("step"), report.get("steps")
    error = report.get("error")
    return StepsReport(
        step if type(step) is int else 0,
        steps if type(steps) is int else 0,
        report.get("finished") is True,
        _one_line(error, _MAX_ERROR_CHARACTERS),
        type(step) is int and 0 <= step <= MAX_STEPS,
        _read_saving(report),
        rank if type(rank := report.get("rank")) is int else 0,
    )


def _one_line(value: object, length: int) -> str:
    """Return a text that can be stored: JSON may contain half of a surrogate pair."""
    return " ".join(str(value or "").split())[:length].encode(errors="replace").decode()


def _read_saving(report: dict[str, Any]) -> float | None:
    seconds: Any = report.get("saving")
    if type(seconds) not in (int, float) or not 0 <= seconds <= MAX_STEPS:
        return None
    return float(seconds)


class RequestCounts(NamedTuple):
    """Request counts of a worker at ``at`` (epoch seconds).

    ``busy`` is in seconds; it, ``batches``, ``batch_size`` and ``refused`` are None if not reported.
    ``stopped`` is why no requests are taken, in one line.
    """

    done: int
    failed: int
    busy: float | None
    at: float
    batches: tuple[BatchRow, ...] | None = None
    batch_size: int | None = None
    refused: int | None = None
    stopped: str = ""


def read_requests(path: Path) -> RequestCounts | None:
    """Return the request counts; None if the report has none.

    Raises:
        ValueError: the report is malformed.
        OSError: the file is not readable.
    """
    try:
        report, written_at = _read(path)
    except FileNotFoundError:
        return None
    if (done := report.get("done")) is None:
        return None
    failed, busy = report.get("failed", 0), report.get("busy")
    if type(done) is not int or type(failed) is not int or not 0 <= failed <= done <= MAX_STEPS:
        raise ValueError(
            f"done and failed must be whole numbers, 0 ≤ failed ≤ done; they are {str(done)[:40]} "
            f"and {str(failed)[:40]}"
        )
    if busy is not None and (type(busy) not in (int, float) or not 0 <= busy <= MAX_STEPS):
        raise ValueError(f"busy must be seconds, 0 or more, not {str(busy)[:40]}")
    refused = report.get("refused")
    if refused is not None and (type(refused) is not int or not 0 <= refused <= MAX_STEPS):
        raise ValueError(f"refused must be a whole number, 0 or more, not {str(refused)[:40]}")
    stopped = _one_line(report.get("stopped"), MAX_STOPPED_LENGTH)
    return RequestCounts(done, failed, busy, max(written_at, 0.0), *_read_batches(report), refused, stopped)


def _read_batches(report: dict[str, Any]) -> tuple[tuple[BatchRow, ...] | None, int | None]:
    """Return the batches by size and the largest batch; raise ``ValueError`` if they are malformed."""
    batches, batch_size = report.get("batches"), report.get("batchSize")
    if batches is None or batch_size is None:
        return None, None
    if type(batch_size) is not int or not 1 <= batch_size <= MAX_STEPS:
        raise ValueError(f"batchSize must be a whole number, 1 or more, not {str(batch_size)[:40]}")
    rows = codec.parse(tuple[BatchRow, ...], batches, "batches")
    if len(rows) > MAX_ROWS or max((row.requests for row in rows), default=0) > MAX_STEPS:
        raise ValueError(
            f"batches must have at most {MAX_ROWS} rows with up to {MAX_STEPS} requests each, not {len(rows)}"
        )
    return rows, batch_size


def _read_queue_depth(path: Path, wall: float) -> float | None:
    """Return the queue depth; None if absent or stale. Raise ``ValueError`` if it is malformed."""
    report, written_at = _read(path)
    depth = report.get("queueDepth")
    if depth is None or abs(wall - written_at) > FRESH_SECONDS:
        return None
    if type(depth) not in (int, float) or not 0 <= depth <= 2**53:
        raise ValueError(f"queueDepth must be a number, 0 or more, not {str(depth)[:40]}")
    return float(depth)


def _read(path: Path) -> tuple[dict[str, Any], float]:
    """Return the report and when it was written (epoch seconds); raise ``ValueError`` if malformed."""
    text, written_at = files.read_regular(path, _MAX_BYTES)
    try:
        report = json.loads(text)
    except RecursionError:
        raise ValueError("the report is nested too deeply") from None
    if not isinstance(report, dict):
        raise ValueError(f"a report must be a JSON object, not {type(report).__name__}")
    return report, written_at
