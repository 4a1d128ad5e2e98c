"""The run to which a checkpoint belongs: job, revision, script, arguments and settings."""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

JOB_VARIABLE: Final = "GPU_SPOT_JOB"
COMMAND_VARIABLE: Final = "GPU_SPOT_COMMAND"
"""A digest of the job's command: where it is known, what a start adds to the arguments is not compared."""
DONE_VARIABLE: Final = "GPU_SPOT_DONE"
TAKE_OVER_VARIABLE: Final = "SPOT_TRAINING_TAKE_OVER"
"""The id of another run whose checkpoints this run continues from."""
START_OVER_VARIABLE: Final = "SPOT_TRAINING_START_OVER"
"""The id of another run whose checkpoints are set aside, or ``damaged``."""
DAMAGED: Final = "damaged"
_DONE_FILE: Final = re.compile(r"\.done-([0-9a-f]{40})(-\d+)?")
"""The agent's file has the revision in its name (docs/contract.md, "The environment")."""
_LAUNCHERS_ARGUMENT: Final = re.compile(r"--local[-_]rank(=.*)?")
_OF_ONE_START: Final = re.compile(
    r"(auto|is|do)?resume.*|continue.*|restart.*|requeue|(load|init)?from(ckpt|checkpoint)?|load(ckpt|checkpoint)?"
    r"|(ckpt|checkpoint)(path|dir|file)?|(run|exp|experiment|job|trial|project)?(name|id|tag|version)"
    r"|(wandb|mlflow|neptune|comet|clearml|tracker|tracking).*|(hydra\.)?run\.dir"
    r"|(output|out|log|logs|logging|save|result|results|run|work)dir|(master|main)?(addr|port|host)|disturl"
)
"""Names of options, without dashes, whose values change at each start of one training: whether it resumes,
its name with a date, the id of a tracker, the directory of its results, the address of its first rank."""
_MISSING: Final = "nothing"


@dataclass(frozen=True)
class TrainingRun:
    """What a training is: two starts of it have the same values, another training differs in one.

    None and empty values are unknown and equal to all others. A checkpoint stores these fields.
    """

    job: str | None = None
    revision: str | None = None
    script: str | None = None
    arguments: Sequence[str] | None = None
    command: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Declared by the script (JSON)."""
    values: Mapping[str, Any] = field(default_factory=dict)
    """Set by the script in its optimizer and scheduler (JSON); they may depend on the number of ranks."""

    @classmethod
    def of_process(
        cls,
        settings: Mapping[str, Any] | None = None,
        values: Mapping[str, Any] | None = None,
        *,
        environment: Mapping[str, str] | None = None,
        command: Sequence[str] | None = None,
    ) -> TrainingRun:
        """Return the run of this process; with ``settings`` neither arguments nor values are compared.

        ``command``: ``sys.argv``. A notebook has no arguments of its own.
        """
        environment = os.environ if environment is None else environment
        script, *arguments = command or sys.argv or [""]
        name: str | None = Path(script).name
        if name == "ipykernel_launcher.py":
            name = None
        revision = _DONE_FILE.fullmatch(Path(environment.get(DONE_VARIABLE, "")).name)
        return cls(
            job=environment.get(JOB_VARIABLE) or None,
            revision=revision[1] if revision else None,
            script=name or None,
            arguments=_without_launcher(arguments) if settings is None and name else None,
            command=environment.get(COMMAND_VARIABLE) or None,
            settings=_json({} if settings is None else settings),
            values=_json(values or {}),
        )

    @property
    def id(self) -> str:
        """Eight hexadecimal digits, the same at each start."""
        values = {key: value for key, value in asdict(self).items() if key != "command" or value is not None}
        if self.arguments is not None:
            values["arguments"] = [] if self.command else _of_all_starts(self.arguments)[0]
        return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:8]

    @property
    def name(self) -> str:
        """The run for people: ``1a2b3c4d (train.py --lr 0.1)``."""
        return name_of_run(self.document())

    def document(self) -> dict[str, Any]:
        """Return the fields as a checkpoint stores them."""
        return {"id": self.id, **_json(asdict(self))}

    def differences(self, stored: Mapping[str, Any], *, same_ranks: bool = True) -> list[str]:
        """Return in what a stored run differs; ``values`` are not compared with another number of ranks."""
        document, result = self.document(), []
        for key in ("job", "revision", "script", "command", "arguments"):
            before, now = stored.get(key), document[key]
            if before is None or now is None or before == now:
                continue
            if key == "arguments":  # those that are the same at all starts of one training
                has_command = self.command is not None and stored.get("command") is not None
                readings = _of_all_starts(now)
                if has_command or any(reading in readings for reading in _of_all_starts(before)):
                    continue
            result.append(f"{key} {_text(before)} there, {_text(now)} here")
        for key in ("settings",) if self.settings or not same_ranks else ("settings", "values"):
            before, now = stored.get(key) or {}, document[key]
            if before and now:
                result += compare(before, now)
        return result

    def refusal(self, stored: Mapping[str, Any], differences: Sequence[str]) -> str:
        """Return why a checkpoint of another run is not taken, and the ways on."""
        return (
            f"is of run {name_of_run(stored)}, this is {self.name}: {'; '.join(differences)}. It stays. To go"
            f" on from it set {TAKE_OVER_VARIABLE}={stored['id']}; to start over set"
            f" {START_OVER_VARIABLE}={stored['id']} or use another directory; or start that run"
        )


def compare(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return the values that differ, as text; nested mappings and lists are compared value by value."""
    old, new = dict(_flat(before)), dict(_flat(now))
    return [
        f"{key} {_text(old.get(key, _MISSING))} there, {_text(new.get(key, _MISSING))} here"
        for key in {**old, **new}
        if old.get(key, _MISSING) != new.get(key, _MISSING)
    ]


def name_of_run(stored: Mapping[str, Any]) -> str:
    """Return a stored run for people."""
    if not stored:
        return "without a name"
    parts = [stored.get("script") or "", *(stored.get("arguments") or ())]
    if stored.get("job"):
        parts = [f"job {stored['job']}"]
    if stored.get("revision"):
        parts.append(f"revision {stored['revision'][:12]}")
    text, label = " ".join(part for part in parts if part), str(stored.get("id", ""))
    return f"{label} ({text})" if text else label


def is_taken_over(run: Mapping[str, Any]) -> bool:
    """Return whether the user lets this run continue from a stored one, or from one that it took over."""
    label = os.environ.get(TAKE_OVER_VARIABLE, "")
    return label in {*run.get("before", ()), run.get("id")} - {None, ""}


def started_over() -> str:
    """Return the id of the run whose checkpoints the user lets this one set aside; empty: none."""
    return os.environ.get(START_OVER_VARIABLE, "")


def or_start_over(run: str) -> str:
    """Return the way on that sets a run's checkpoints aside, to end an error with; empty without an id."""
    return f", or set {START_OVER_VARIABLE}={run} to start over" if run else ""


def _without_launcher(arguments: Sequence[str]) -> list[str]:
    """Return the arguments without the rank that a launcher adds."""
    before = [None, *arguments][:-1]
    return [
        argument
        for argument, last in zip(arguments, before, strict=True)
        if not _LAUNCHERS_ARGUMENT.fullmatch(argument) and last not in ("--local-rank", "--local_rank")
    ]


def _of_all_starts(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the arguments without those of one start, in two readings.

    Of ``--resume x`` the second is the option's value, or an argument of its own.
    """
    readings, follows = (list[str](), list[str]()), False
    for argument in arguments:
        name, _, value = argument.partition("=")
        is_option = argument.startswith("-") or bool(value)
        key = name.lstrip("-+").replace("-", "").replace("_", "").lower()
        if is_option and _OF_ONE_START.fullmatch(key):
            follows = not value
            continue
        readings[0].append(argument)
        if is_option or not follows:
            readings[1].append(argument)
        follows = False
    return readings


def _flat(value: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _flat(inner, f"{key}.{name}" if key else str(name))
    elif isinstance(value, (list, tuple)) and any(isinstance(inner, (Mapping, list)) for inner in value):
        for number, inner in enumerate(value):
            yield from _flat(inner, f"{key}.{number}")
    else:
        yield key, list(value) if isinstance(value, tuple) else value


def _json(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return a value as it comes back from JSON; what JSON does not have becomes text."""
    result: dict[str, Any] = json.loads(json.dumps(value, default=str))
    return result


def _text(value: Any) -> str:
    return f"[{' '.join(map(str, value))}]" if isinstance(value, list) else str(value)
