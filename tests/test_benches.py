"""Where a benchmark lacks something, its first line says what, and no traceback follows."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from packages import environments
from research.libraries import checkpoint
from tests.soak import sample
from tests.waiting import TIMEOUT_SECONDS

ROOT: Final = Path(__file__).parents[1]
TRACES: Final = "GPU_SPOT_TRACES must be the folder of the traces to fit on, not None"
BROKER: Final = "no RabbitMQ server at "
STOPS: Final = {
    "fit.deadline": TRACES,
    "fit.forecast": TRACES,
    "fit.hazard": TRACES,
    "fit.market": TRACES,
    "measured.http": "no haproxy on PATH",
    "measured.service": BROKER,
}
"""What ends with code 2 where neither traces nor programs are at hand, and the line that it ends with."""
MODEL: Final = "replaying the fitted model: GPU_SPOT_TRACES is not set"
CONTAINERS: Final = "containers are left out: "
CONTINUES: Final = {
    "market.capacity": MODEL,
    "market.deadline": MODEL,
    "market.doubt": MODEL,
    "market.forecast": MODEL,
    "measured.kubernetes": CONTAINERS,
    "market.rebalance": MODEL,
    "services.request_log": MODEL,
    "services.scaling": MODEL,
    "measured.slices": CONTAINERS,
    "market.warm_pool": MODEL,
}
"""What does a part or something else there, and the line that says so."""
NEEDS_NOTHING: Final = {
    "libraries.service_sqs",
    "measured.checker",
    "measured.health",
    "measured.review",
    "measured.walk",
    "rehearsed.research",
    "services.rollout",
}


def module_of(name: str) -> str:
    return f"tests.{name}" if name.startswith("measured.") else f"research.{name}"


def start_benchmark(name: str, folder: Path, *arguments: str, **variables: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", module_of(name), *arguments],
        cwd=ROOT,
        env={"PATH": str(folder), "HOME": str(folder), **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def test_of_every_benchmark_it_is_known_what_it_needs() -> None:
    scripts = [*ROOT.glob("research/*/*.py"), *ROOT.glob("tests/measured/*.py")]
    names = {
        f"{path.parent.name}.{path.stem}"
        for path in scripts
        if path.stem != "__init__" and path.parent.name not in ("parts", "simulation", "smoke")
    }
    installs = {"libraries.checkpoint", "libraries.nodes"}  # the framework
    assert names == {*STOPS, *CONTINUES, *NEEDS_NOTHING, *installs}


def test_every_function_that_a_benchmark_names_for_a_worker_exists() -> None:
    named = {
        match.group(1, 2)
        for folder in ("packages/broker_plays", "research/parts", "tests/measured", "tests/real")
        for path in ROOT.glob(f"{folder}/*.py")
        for match in re.finditer(r'"((?:packages|research|tests|rehearsal)[a-z_.]*):(\w+)"', path.read_text())
    }
    assert len(named) > 4
    for module, function in sorted(named):
        text = (ROOT / module.replace(".", "/")).with_suffix(".py").read_text()
        assert f"\ndef {function}(" in text, f"{module} has no function {function}"


@pytest.mark.parametrize("name", sample(STOPS, 8))
def test_without_what_it_needs_it_ends_with_code_2(name: str, tmp_path: Path) -> None:
    process = start_benchmark(name, tmp_path)
    said, _ = process.communicate(timeout=TIMEOUT_SECONDS)
    [line] = said.splitlines()
    assert line.startswith(STOPS[name])
    assert process.returncode == 2


@pytest.mark.parametrize("name", sample(CONTINUES, 10))
def test_what_it_leaves_out_or_replaces_stands_first(name: str, tmp_path: Path) -> None:
    process = start_benchmark(name, tmp_path, "--out", str(tmp_path / "out.json"))
    assert process.stdout is not None
    try:
        assert process.stdout.readline().startswith(CONTINUES[name])
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


@pytest.mark.parametrize("name", sample(["market.deadline", "market.rebalance"], 2))
def test_a_folder_of_traces_that_is_not_there_is_no_model(name: str, tmp_path: Path) -> None:
    process = start_benchmark(name, tmp_path, GPU_SPOT_TRACES="nowhere")
    said, _ = process.communicate(timeout=TIMEOUT_SECONDS)
    assert said == "GPU_SPOT_TRACES must be a folder, not 'nowhere' (unset it to replay the fitted model)\n"
    assert process.returncode == 2


def test_without_a_package_index_there_is_no_framework(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(environments, "ROOT", tmp_path)
    monkeypatch.setattr(sys, "executable", "false")
    with pytest.raises(SystemExit) as ended:
        checkpoint.main(["--only", "torch"])
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith("torch.txt needs a package index and cannot be installed")
