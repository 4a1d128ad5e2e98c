"""Play habits: uninterrupted, then killed and started again; prints JSON by title.

``python -m frameworks.habits.player FOLDER [--kills N] [--only TITLE …]``. A start is a fork of this process.
The outcome of a habit is ``same`` (every killed run ends with the result of the uninterrupted one),
``refused`` (a start ends with a line of this package) or what went wrong.
"""

from __future__ import annotations

import argparse
import atexit
import contextlib
import importlib
import json
import os
import random
import re
import shutil
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

TIMEOUT_SECONDS = 120.0
Body = Callable[["Start"], object]


class Start:
    """One start of a script: its folder, the step at which it is killed, what it is for."""

    def __init__(self, folder: Path, step: int = 0, how: int = 0, number: int = 0) -> None:
        self.folder, self._step, self._how, self.number = folder, step, how, number
        self._count = 0

    def tick(self) -> None:
        """End a step; at one of them the process gets its signal."""
        time.sleep(0.004)  # a save begins every 10 ms
        self._count += 1
        if self._count == self._step:
            os.kill(os.getpid(), self._how)
            time.sleep(0.02)

    def end(self, *models: Any, **values: Any) -> None:
        """Write the result: weights and values."""
        tensors = [
            [key, value.flatten().tolist()] for one in models for key, value in one.state_dict().items()
        ]
        (self.folder / "steps").write_text(str(self._count))
        (self.folder / "result").write_text(json.dumps([tensors, values]))

    def run(self, body: Body) -> int:
        """Run it in a process of its own; return the exit code, or the negative number of a signal."""
        self.folder.mkdir(exist_ok=True)
        (self.folder / "tell.json").unlink(missing_ok=True)
        if (process := os.fork()) == 0:
            self._main(body)
        end = time.monotonic() + TIMEOUT_SECONDS
        while time.monotonic() < end:
            done, status = os.waitpid(process, os.WNOHANG)
            if done:
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.01)
        os.kill(process, signal.SIGKILL)
        return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])

    def _main(self, body: Body) -> None:
        os.setsid()
        log = (self.folder / "log").open("a")
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
        os.environ |= {"GPU_SPOT_TELL": str(self.folder / "tell.json"), "MKL_THREADING_LAYER": "SEQUENTIAL"}
        os.environ["GPU_SPOT_CHECKPOINTS"] = str(self.folder / "checkpoints")
        code = 0
        try:
            body(self)
        except SystemExit as error:
            code = int(error.code or 0)
        except BaseException:
            code, sys.last_value = 1, sys.exc_info()[1]
            sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        sys.stderr.flush()
        os._exit(code)

    @property
    def report(self) -> Any:
        """What it has reported to the agent."""
        with contextlib.suppress(OSError, ValueError):
            return json.loads((self.folder / "tell.json").read_text())
        return {}

    @property
    def result(self) -> str:
        """What it has written at its end."""
        path = self.folder / "result"
        return path.read_text() if path.exists() else ""

    @property
    def steps(self) -> int:
        """Steps that it took; of a script that has not come to its end, those that it reported."""
        path = self.folder / "steps"
        return int(path.read_text() if path.exists() else self.report.get("step", 18))

    @property
    def line(self) -> str:
        """The last line of its log."""
        lines = self.lines()
        return next(reversed(lines), "")

    def lines(self) -> list[str]:
        """Return the lines of this package in its log, else its last one."""
        lines = (self.folder / "log").read_text().splitlines()
        return [line for line in lines if "spot_training" in line] or lines[-1:]


def play(body: Body, folder: Path, kills: int, chance: random.Random) -> dict[str, Any]:
    """Return the outcome of a habit, its line and the number of kills."""
    whole = Start(folder / "whole")
    folder.mkdir(parents=True)
    code = whole.run(body)
    if code or "error" in whole.report:
        return {
            "outcome": "refused" if re.match(r"spot_training[.:]", whole.line) else "fails",
            "line": whole.line,
            "kills": 0,
        }
    steps, done = whole.steps, 0
    while done < kills:
        run, number = folder / f"run-{done}", 0
        for number in range(1, kills - done + 1):
            how = chance.choice((signal.SIGTERM, signal.SIGKILL))
            killed = Start(run, chance.randrange(1, max(2, steps)), how, number)
            code = killed.run(body)
            if code == 0 and killed.result:
                break
            if code not in (0, -signal.SIGKILL):
                return ended(killed, code, done)
            done += 1
        last = Start(run, number=number + 1)
        if not last.result and (code := last.run(body)):
            return ended(last, code, done)
        if last.result != whole.result:
            return {"outcome": "other result", "line": " ".join(last.lines()), "kills": done}
        done = max(done, 1)
        shutil.rmtree(run)
    return {"outcome": "same", "line": " ".join(whole.lines()), "kills": done}


def ended(start: Start, code: int, kills: int) -> dict[str, Any]:
    """Return the outcome of a start that failed: refused, if an error of this package says why."""
    is_refused = "spot_training.errors." in start.line
    outcome = "refused" if is_refused else f"exit code {code} after {kills} kills"
    return {"outcome": outcome, "line": start.line, "kills": kills}


def main() -> None:
    """Play what the arguments say."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--kills", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rows", required=True)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--audit", default="stop", help="of Loop: with off, what goes wrong without one")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    os.environ["HABITS_AUDIT"] = given.audit
    importlib.import_module(f"frameworks.habits.{given.rows}")
    rows, results = importlib.import_module("frameworks.habits.table").ROWS, {}
    for number, row in enumerate(rows):
        if not given.only or row.title in given.only:
            chance = random.Random(f"{row.title} {given.seed}")
            results[row.title] = play(row.body, given.folder / str(number), given.kills, chance)
            sys.stderr.write(f"{row.title}: {results[row.title]}\n")
    sys.stdout.write(json.dumps(results) + "\n")


if __name__ == "__main__":
    main()
