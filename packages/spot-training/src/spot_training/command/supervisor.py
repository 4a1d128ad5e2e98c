"""Supervises a training without a node agent: restarts, the interruption notice."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from spot_training.checkpointer import FOLDER_VARIABLE
from spot_training.errors import OtherRunError, log, one_line
from spot_training.notice import NOTICE_VARIABLE, Notice
from spot_training.progress import DONE_FILE_VARIABLE, PROGRESS_FILE_VARIABLE
from spot_training.storage.folder import store_of
from spot_training.storage.manifest import FILE

SAVED_CODE: Final = 75
"""Exit code after a notice: start it again, it resumes. Source: sysexits.h, EX_TEMPFAIL."""
MIN_DELAY_SECONDS: Final = 5.0
MAX_DELAY_SECONDS: Final = 300.0
_LEFTOVER_SECONDS: Final = 10.0
_POLL_SECONDS: Final = 0.2
_KILL_RESERVE_SECONDS: Final = 2.0


class Supervisor:
    """Runs a command until it is done, a notice is received, or it fails too often in a row.

    A notice is written to ``$GPU_SPOT_NOTICE``, which ``spot_training`` reads between two steps, and the
    command gets SIGTERM. What it started gets none: a shell's training reads the file.
    """

    def __init__(
        self,
        command: Sequence[str],
        location: str,
        notice: Notice,
        *,
        restarts: int,
        grace_seconds: float,
        delay_seconds: float = MIN_DELAY_SECONDS,
    ) -> None:
        """``location``: of the checkpoints; ``restarts``: failures in a row without a new checkpoint."""
        self._command, self._location, self._notice = list(command), store_of(location).location, notice
        self._restarts, self._grace_seconds, self._delay_seconds = restarts, grace_seconds, delay_seconds

    def run(self) -> int:
        """Return 0 if the training is done, `SAVED_CODE` after a notice, else its last exit code."""
        with tempfile.TemporaryDirectory(prefix="spot-training-") as folder:
            return self._run(Path(folder))

    def _run(self, folder: Path) -> int:
        environment = self._environment(folder)
        failures, delay = 0, self._delay_seconds
        while True:
            before = self._checkpoints()
            with contextlib.suppress(FileNotFoundError):
                Path(environment[PROGRESS_FILE_VARIABLE]).unlink()
            code = self._run_once(environment)
            is_done, reason = self._judge(code, environment)
            if is_done:
                return 0
            if self._notice.received:
                log.warning("stopped by a notice, exit code %d; start it again to resume", code)
                return SAVED_CODE
            report = _read_report(environment)
            if report.get("error_type") == OtherRunError.__name__:
                log.error("not started again: %s", report.get("error"))
                return code if 0 < code < 256 else 1
            if self._checkpoints() - before:
                failures, delay = 0, self._delay_seconds
            failures += 1
            if failures > self._restarts:
                log.error("%s; failed %d times without a new checkpoint", reason, failures)
                return code if 0 < code < 256 else 1
            log.warning("%s; starting again in %.0f s (%d of %d)", reason, delay, failures, self._restarts)
            end, delay = time.monotonic() + delay, min(2 * delay, MAX_DELAY_SECONDS)
            while time.monotonic() < end:
                if self._notice.received:
                    return SAVED_CODE
                time.sleep(_POLL_SECONDS)

    def _environment(self, folder: Path) -> dict[str, str]:
        return {
            NOTICE_VARIABLE: str(folder / "notice.json"),
            PROGRESS_FILE_VARIABLE: str(folder / "progress.json"),
            DONE_FILE_VARIABLE: str(folder / "done"),
            "TORCH_ELASTIC_SHUTDOWN_TIMEOUT": f"{self._grace_seconds:.0f}",
            "PYTHONUNBUFFERED": "1",
            "PYTHONHASHSEED": "0",  # the order of a set is the same at each start
            **os.environ,
            FOLDER_VARIABLE: self._location,
        }

    def _judge(self, code: int, environment: dict[str, str]) -> tuple[bool, str]:
        """Return whether the training is done, else the reason why not; an exit code alone proves nothing."""
        if Path(environment[DONE_FILE_VARIABLE]).exists():
            return True, ""
        if code != 0:
            return False, f"exit code {code}" if code > 0 else f"ended by signal {-code}"
        report = _read_report(environment)
        if "error" in report:
            return False, f"exit code 0, but the training failed: {report['error']}"
        step, steps = report.get("step", 0), report.get("steps", 0)
        is_complete = (not report or 0 < steps <= step) and not self._notice.received
        text = f"exit code 0 at step {step} of {steps or 'an unknown number'}"
        return bool(is_complete or report.get("finished")), text

    def _checkpoints(self) -> set[str]:
        """Return the checkpoints; in a directory also those of trainings with a name."""
        try:
            names = set(store_of(self._location).names())
            if "://" not in self._location:
                names |= {str(path.parent) for path in Path(self._location).glob(f"[!.]*/step-*/{FILE}")}
            return names
        except OSError as error:
            log.warning("%s: checkpoints not listed: %s", self._location, one_line(error))
            return set()

    def _run_once(self, environment: dict[str, str]) -> int:
        try:
            process = subprocess.Popen(self._command, env=environment, start_new_session=True)  # noqa: S603
        except OSError as error:
            log.error("%s cannot be started: %s", self._command[0], one_line(error))
            return 127
        while process.poll() is None and not self._notice.received:
            time.sleep(_POLL_SECONDS)
        if process.poll() is None:
            self._stop(process, Path(environment[NOTICE_VARIABLE]))
        end_group(process)
        return process.wait()

    def _stop(self, process: subprocess.Popen[bytes], notice_file: Path) -> None:
        """Announce the notice and wait for all processes; `end_group` kills what remains."""
        remaining = self._notice.seconds_left
        seconds = self._grace_seconds if remaining is None else min(self._grace_seconds, remaining)
        if not notice_file.exists():
            new = notice_file.with_suffix(".new")
            new.write_text(json.dumps({"deadline": time.time() + seconds}))
            new.replace(notice_file)
        log.warning("notice: the training has %.0f s to save", seconds)
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        started, has_signalled = time.monotonic(), False
        while _signal_group(process.pid) and time.monotonic() - started < seconds - _KILL_RESERVE_SECONDS:
            process.poll()
            time.sleep(_POLL_SECONDS)
            if not has_signalled and time.monotonic() - started > seconds / 2:
                has_signalled = True  # a shell forwards no signal, and its script does not read the file
                _signal_group(process.pid, signal.SIGTERM)
        if _signal_group(process.pid):
            log.error("time is up: the training is killed")
            _signal_group(process.pid, signal.SIGKILL)


def _read_report(environment: Mapping[str, str]) -> dict[str, Any]:
    """Return the training's last report; empty without one."""
    try:
        report = json.loads(Path(environment[PROGRESS_FILE_VARIABLE]).read_text())
    except (OSError, ValueError):
        return {}
    return report if isinstance(report, dict) else {}


def end_group(process: subprocess.Popen[bytes]) -> None:
    """End what a command left behind: SIGTERM, ten seconds, SIGKILL."""
    _signal_group(process.pid, signal.SIGTERM)
    end = time.monotonic() + _LEFTOVER_SECONDS
    while _signal_group(process.pid) and time.monotonic() < end:
        process.poll()  # an ended leader counts as alive until then
        time.sleep(0.05)
    _signal_group(process.pid, signal.SIGKILL)


def _signal_group(group: int, number: int = 0) -> bool:
    """Send a signal to a group, by default none; return whether it has processes."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True
