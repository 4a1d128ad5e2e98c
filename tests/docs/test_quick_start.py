"""The quick start of docs/training.md, from the page: run, kill, run again."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from docs.site.stage import ROOT
from tests.waiting import wait_until

PAGE = (ROOT / "docs/training.md").read_text("utf-8")


def block(language: str) -> str:
    """The page's first code block in a language."""
    found = re.search(rf"```{language}\n(.*?)```", PAGE, re.S)
    assert found
    return found[1]


@pytest.mark.soak
def test_a_training_is_killed_stopped_and_resumed(tmp_path: Path) -> None:
    script = block("python")
    assert script.startswith("# train.py\n")
    (tmp_path / "train.py").write_text(script)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GPU_SPOT_")}

    def start(line: str) -> subprocess.Popen[str]:
        [program, *arguments] = shlex.split(line)
        assert program == "spot-training"
        command = [sys.executable if argument == "python" else argument for argument in arguments]
        return subprocess.Popen(
            [sys.executable, "-m", "spot_training.command", *command],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def saved() -> int:
        names = (tmp_path / "checkpoints").glob("step-*")
        return max((int(path.name.removeprefix("step-")) for path in names), default=0)

    run, show = block("console").splitlines()
    first = start(run)
    wait_until(lambda: saved() > 0)
    [child] = Path(f"/proc/{first.pid}/task/{first.pid}/children").read_text().split()
    os.kill(int(child), signal.SIGKILL)
    before = saved()
    wait_until(lambda: saved() > before)  # started again
    first.send_signal(signal.SIGINT)
    text, _ = first.communicate(timeout=60)
    assert first.returncode == 75, text
    assert "ended by signal 9; starting again in 5 s" in text
    assert before < saved() < 100
    text, _ = start(show).communicate(timeout=60)
    assert f"step-{saved():012d}" in text.splitlines()[0]
    second = start(run)
    text, _ = second.communicate(timeout=120)
    assert second.returncode == 0, text
