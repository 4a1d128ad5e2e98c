"""Commands of the documentation, typed as their pages have them; the demo shorter, on zones made here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from docs.site.stage import ROOT
from packages.rabbitmq import RabbitServer
from tests.docs.commands import code_block_commands

LINES = sorted({one.line for one in code_block_commands() if one.line.startswith(".venv/bin/gpu-spot demo ")})


@pytest.mark.soak
@pytest.mark.parametrize("line", LINES)
def test_the_demo_runs(line: str, tmp_path: Path) -> None:
    for zone in "abc":
        trace = {"metadata": {"gap_seconds": 600}, "data": [1, 1, 1, 0] * 12}
        (tmp_path / f"us-west-2{zone}_v100_1.json").write_text(json.dumps(trace), "utf-8")
    short = line.replace("--hours 168", "--hours 2").replace("--trace us", f"--trace {tmp_path}/us")
    assert short.count(str(tmp_path)) == 1
    script = f"{short} --out {tmp_path}/out".replace(".venv/bin/", f"{Path(sys.executable).parent}/")
    command = ["bash", "-euc", script]  # which expands the braces
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "COLUMNS": "120"}, capture_output=True, text=True, timeout=500
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "report.html").exists()


def test_the_readme_starts_both_services_and_the_client(broker: RabbitServer) -> None:
    page = "examples/ocr-service/README.md"
    typed = [command.line for command in code_block_commands() if command.page == page]
    install, enter, export, recognise, preprocess, client = typed
    assert install.startswith("pip install ")
    script = (
        f"{enter}\n{export}\nexport SPOT_WORK_URL={broker.url}\n{recognise} &\n{preprocess} &\n{client}\n"
    )
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-euc", f"trap 'kill $(jobs -p)' EXIT\n{script}"],
        cwd=ROOT,
        env={**os.environ, "PATH": path, "PYTHONPATH": str(ROOT / "packages" / "spot-work" / "src")},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert "Text(text='HELLO WORLD', source=" in done.stdout, done.stderr
