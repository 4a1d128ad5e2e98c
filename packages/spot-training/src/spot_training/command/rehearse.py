"""Rehearses interruptions of the user's own script: an uninterrupted run against runs that are killed.

What they leave is compared by value: a file's bytes may differ by chance.
"""

from __future__ import annotations

import contextlib
import csv
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from spot_training.checkpointer import FOLDER_VARIABLE
from spot_training.command.supervisor import end_group
from spot_training.errors import SpotTrainingError
from spot_training.notice import NOTICE_VARIABLE
from spot_training.progress import DONE_FILE_VARIABLE, PROGRESS_FILE_VARIABLE
from spot_training.rehearsal import VARIABLE, Rehearsal

ORDER_VARIABLE: Final = "SPOT_TRAINING_LISTS_BACKWARDS"
LISTS: Final = f"""
import os, sys
_listdir, _scandir, _sign = os.listdir, os.scandir, bool(os.environ.get("{ORDER_VARIABLE}"))
class _Entries:
    def __init__(self, path):
        with _scandir(path) as entries:
            self._entries = iter(sorted(entries, key=lambda entry: entry.name, reverse=_sign))
    def __iter__(self): return self._entries
    def __next__(self): return next(self._entries)
    def __enter__(self): return self
    def __exit__(self, *error): pass
    def close(self): pass
os.listdir = lambda path=".": sorted(_listdir(path), reverse=_sign)
os.scandir = lambda path=".": _Entries(path)
sys.path.remove(os.path.dirname(__file__))
sys.modules.pop("sitecustomize", None)
try:
    import sitecustomize
except ImportError:
    pass
"""
"""``sitecustomize`` of a machine: directories are listed by name, or backwards."""
_LEFT_OUT: Final = ("manifest.json", "training_args.bin", ".randomness.json")
_UNSEEDED: Final = ("randomness.python", "randomness.numpy", "rng_state")
"""Random numbers that a script may leave without a seed; if it uses them, something else differs, too."""
_TORCH: Final = (".pt", ".pth", ".ckpt", ".bin")
_MAX_NAMED: Final = 3
OTHER_MACHINE: Final = ", then a machine with other orders of directories and sets"


class Rehearser:
    """Runs a command for some steps, uninterrupted and interrupted, and compares what it leaves."""

    def __init__(self, command: Sequence[str], folder: Path, steps: int, seconds: float) -> None:
        """``seconds``: that a start may take."""
        self._command, self._folder, self._steps, self._seconds = list(command), folder, steps, seconds
        (folder / "site").mkdir()
        (folder / "site" / "sitecustomize.py").write_text(LISTS)

    def run(self) -> Iterator[tuple[str, str]]:
        """Yield the rows of the table: an interruption, and ``same`` or what differs."""
        whole = self._folder / "whole"
        problem = self._start(Rehearsal(str(whole), self._steps))
        if not problem and not list(whole.rglob("step-*")):
            problem = "the script saved no checkpoint; use one that trains with spot_training"
        if problem:
            yield "uninterrupted", problem
            return
        for number, (name, step, how) in enumerate(self._interruptions(_steps(whole))):
            start = Rehearsal(str(self._folder / str(number)), self._steps, step, how)
            yield name, self._play(start, name, whole)

    def _interruptions(self, steps: Sequence[Any]) -> list[tuple[str, int, str]]:
        """Return name, step and signal of each: inside an epoch, and at the end of one if one was reached."""
        epochs = {step: epoch for step, epoch, _ in steps}
        ends = [step for step in epochs if 1 < step < self._steps and epochs.get(step + 1, -1) > epochs[step]]
        middle = self._steps // 2 - (self._steps // 2 in ends)
        moments = [(middle, ""), *((step, ", an epoch's last") for step in ends[:1])]
        rows = [
            (f"{name} after step {step}{text}", step, how)
            for step, text in moments
            for name, how in (("notice", "SIGTERM"), ("SIGKILL", "SIGKILL"))
        ]
        return [*rows, (f"notice after step {middle}{OTHER_MACHINE}", middle, "SIGTERM")]

    def _play(self, start: Rehearsal, name: str, whole: Path) -> str:
        folder = Path(start.folder)
        if problem := self._start(start):
            return problem
        goes_on = Rehearsal(start.folder, start.last_step)
        if problem := self._start(goes_on, is_other=name.endswith(OTHER_MACHINE)):
            return f"the restart: {problem}"
        whole_steps = {step: samples for step, _, samples in _steps(whole)}
        steps = {step: samples for step, _, samples in _steps(folder)}
        differing = [step for step in sorted(steps) if whole_steps.get(step) != steps[step]]
        problems = [f"samples from step {step} on" for step in differing[:1]]
        problems += [*_differences(whole, folder), *_compare_logs(whole / "artifacts", folder / "artifacts")]
        return f"differs: {'; '.join(problems)}" if problems else "same"

    def _start(self, rehearsal: Rehearsal, *, is_other: bool = False) -> str:
        """Run the command once; return why it did not end as it should."""
        folder = Path(rehearsal.folder)
        (folder / "artifacts").mkdir(parents=True, exist_ok=True)
        (report_file := folder / "tell.json").unlink(missing_ok=True)
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(self._folder / "site"), os.environ.get("PYTHONPATH", "")]),
            "PYTHONHASHSEED": "2" if is_other else "1",
            VARIABLE: rehearsal.variable(),
            ORDER_VARIABLE: "1" if is_other else "",
            FOLDER_VARIABLE: str(folder / "checkpoints"),
            PROGRESS_FILE_VARIABLE: str(report_file),
            "GPU_SPOT_ARTIFACTS": str(folder / "artifacts"),
        }
        for name in (NOTICE_VARIABLE, DONE_FILE_VARIABLE):
            environment.pop(name, None)
        gpus = environment.get("CUDA_VISIBLE_DEVICES") or ",".join(
            path.name[6:] for path in sorted(Path("/dev").glob("nvidia[0-9]*"))
        )
        if is_other and "," in gpus and "torchrun" not in self._command[0]:
            environment["CUDA_VISIBLE_DEVICES"] = gpus.rpartition(",")[0]
        with (folder / "log").open("a") as log:
            try:
                process = subprocess.Popen(  # noqa: S603
                    self._command, env=environment, stdout=log, stderr=log, start_new_session=True
                )
            except OSError as error:
                raise SpotTrainingError(f"{self._command[0]} cannot be started: {error}") from None
            try:
                code = process.wait(self._seconds)
            except subprocess.TimeoutExpired:
                return f"not at its end after {self._seconds:.0f} s"
            finally:
                end_group(process)
                process.wait()
        report = json.loads(report_file.read_text()) if report_file.exists() else {}
        is_killed = rehearsal.signal == "SIGKILL" and code == -signal.SIGKILL
        if (not code or is_killed) and "error" not in report:
            return ""
        lines = (folder / "log").read_text().splitlines() or [""]
        return f"exit code {code}: {report.get('error') or lines[-1]}"[:500]


def rehearse(command: Sequence[str], steps: int, seconds: float) -> int:
    """Print the table; return 0 if every row is the same, else 1."""
    rows = []
    with tempfile.TemporaryDirectory(prefix="spot-training-rehearsal-") as folder:
        for name, text in Rehearser(command, Path(folder), steps, seconds).run():
            rows.append(text)
            sys.stdout.write(f"{name}: {text}\n")
            sys.stdout.flush()
    is_same = all(text == "same" for text in rows)
    sys.stdout.write(f"{steps} steps: a restart is {'' if is_same else 'not '}as no restart\n")
    return int(not is_same)


def _steps(folder: Path) -> list[Any]:
    path = folder / "steps"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def _compare_logs(whole: Path, twin: Path) -> list[str]:
    """Compare the rows of logs among the results, without columns of time."""
    paths = (path.relative_to(whole) for path in sorted(whole.rglob("*")))
    logs = [path for path in paths if path.suffix in (".csv", ".jsonl")]
    return [f"rows of {path}" for path in logs if _rows(whole / path) != _rows(twin / path)]


def _rows(path: Path) -> list[Any]:
    if not path.exists():
        return []
    with path.open(newline="") as file:
        rows = csv.DictReader(file) if path.suffix == ".csv" else map(json.loads, file)
        return [{key: row[key] for key in row if "time" not in key and "second" not in key} for row in rows]


def _differences(first: Path, second: Path) -> list[str]:
    """Return which values differ in the newest checkpoints of two runs, at most three of each file."""
    whole, two = (_newest(folder / "checkpoints") for folder in (first, second))
    if not whole or whole.keys() != two.keys():
        uninterrupted, restarted = (", ".join(names) or "none" for names in (whole, two))
        return [f"the newest checkpoints: {uninterrupted}, after the restart {restarted}"]
    result = []
    for name in whole:
        files, twins = _files(whole[name]), _files(two[name])
        for path in sorted({*files, *twins}):
            if path not in files or path not in twins:
                result.append(f"{path} is in one only")
                continue
            before = dict(_flat(_read(files[path]), str(first)))
            after = dict(_flat(_read(twins[path]), str(second)))
            keys = [key for key in {**before, **after} if before.get(key) != after.get(key)]
            if keys := [key for key in keys if not any(name in f"{path} {key}" for name in _UNSEEDED)]:
                more = ", …" if len(keys) > _MAX_NAMED else ""
                result.append(f"{path} {', '.join(keys[:_MAX_NAMED])}{more}")
    return result


def _newest(folder: Path) -> dict[str, Path]:
    """Return the newest checkpoint of each training, by its name and step."""
    result: dict[str, Path] = {}
    for path in sorted(folder.rglob("step-*")):
        if path.is_dir() and not any(part.startswith(".") for part in path.relative_to(folder).parts):
            result[str(path.parent.relative_to(folder))] = path
    return {f"{name} {path.name}": path for name, path in result.items()}


def _files(folder: Path) -> dict[str, Path]:
    return {
        str(path.relative_to(folder)): path
        for path in folder.rglob("*")
        if path.is_file() and path.name not in _LEFT_OUT
    }


def _read(path: Path) -> Any:
    if path.suffix == ".json":
        return json.loads(path.read_text())
    with contextlib.suppress(Exception):  # of a type that is not loaded, or the package is not installed here
        if path.suffix in _TORCH:
            return importlib.import_module("spot_training.torch.state").read(path)
        if path.suffix == ".npz":
            with importlib.import_module("numpy").load(path, allow_pickle=False) as arrays:
                return {name: arrays[name] for name in arrays.files}
    return path.read_bytes()


def _flat(value: Any, folder: str, key: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values by their path; the run's own folder is none."""
    if isinstance(value, (Mapping, list, tuple)):
        for name, inner in value.items() if isinstance(value, Mapping) else enumerate(value):
            yield from _flat(inner, folder, f"{key}.{name}" if key else str(name))
    elif hasattr(value, "tobytes") or hasattr(value, "numpy"):
        array = value.detach().cpu() if hasattr(value, "detach") else value
        content = array.flatten().tolist() if hasattr(array, "flatten") else array.tolist()
        yield key, f"{array.dtype} {tuple(array.shape)} {content}"
    elif not any(word in key for word in ("time", "second", "runtime")):
        yield key, str(value).replace(folder, "…") if isinstance(value, str) else repr(value)
