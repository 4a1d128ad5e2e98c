"""``spot-training suggest`` as the agent calls it, in one process: an import of Optuna takes a second.

As a script it answers questions: each line of standard input names a question's file and an answer's.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.real import environments


class OptunaSampler:
    """Runs the command line of ``spot-training suggest``, as ``Host.run`` does."""

    def __init__(self, place: Path) -> None:
        variables = environments.variables(place)
        variables["PYTHONPATH"] += f":{environments.ROOT}"
        self._process = subprocess.Popen(
            [place / "python", "-m", "tests.real.study_sampler"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=variables,
            cwd=environments.ROOT,
        )

    def run(self, argv: Sequence[str], stdin: str = "", environment: Mapping[str, str] | None = None) -> str:
        *command, question, answer = argv
        assert command == ["spot-training", "suggest"]
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{question} {answer}\n")
        self._process.stdin.flush()
        assert self._process.stdout.readline() == "answered\n"
        return ""

    def close(self) -> None:
        self._process.communicate()


def main() -> None:
    from spot_training.command.cli import main as spot_training

    for line in sys.stdin:
        assert spot_training(["suggest", *line.split()]) == 0
        sys.stdout.write("answered\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
