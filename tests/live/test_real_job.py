"""A job's own command on a rehearsed instance: a real process, paced by simulated time."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from signal import SIGKILL, SIGTERM

import pytest

from gpu_spot.live.real_job import closing
from gpu_spot.nodes import code_host, repository
from gpu_spot.nodes.real import PACE, PLAYED, RealProcess, RealWork
from pulumi_on_moto.errors import LocalCloudError
from userdata.agent.config.model import Training
from userdata.agent.work.checkout import checkout

EXAMPLE = Path(__file__).resolve().parents[2] / "examples/training"
HOST = "https://git.example.org"
CODE = Path("/var/lib/gpu-spot/code/resnet")


class Clock:
    """Simulated seconds, moved by hand."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


def started(
    tmp_path: Path, clock: Clock, *arguments: str, script: Path = EXAMPLE / "train.py"
) -> RealProcess:
    places = {name: str(tmp_path / name.lower()) for name in ("CHECKPOINTS", "ARTIFACTS", "DATASETS", "DONE")}
    environment = {f"GPU_SPOT_{name}": place for name, place in places.items()}
    argv = [sys.executable, str(script), *arguments]
    return RealProcess(argv, environment, tmp_path, tmp_path, clock, tmp_path / "output")


def ended(process: RealProcess, clock: Clock) -> int:
    """Let time pass until it ends; two minutes of it are a third of a real second."""
    for _ in range(400):
        clock.now += 120
        if (code := process.poll()) is not None:
            return code
    raise AssertionError("it does not end")


@pytest.fixture
def work(tmp_path: Path) -> Iterator[RealWork]:
    repository.made_of(EXAMPLE, tmp_path / "served/examples/training")
    with code_host.serving(tmp_path / "served", tmp_path / "tls") as host:
        yield RealWork(host, HOST)


def test_the_agents_checkout_brings_the_shipped_code_onto_the_instances_own_disk(
    tmp_path: Path, work: RealWork
) -> None:
    disk = tmp_path / "disk"

    class Host:
        def run(self, argv: list[str], stdin: str = "", environment: dict[str, str] | None = None) -> str:
            return work.run(argv, environment or {}, disk) if argv[0] in PLAYED else ""

    training = Training(
        job="resnet",
        job_table="jobs",
        repository=f"{HOST}/examples/training",
        revision=repository.commit_of(EXAMPLE),
        command=("python3", "train.py"),
        user="gpu-spot-job",
        finished_parameter="/finished",
    )
    for _ in range(2):  # again in the place of what was there
        checkout(Host(), training, CODE)  # type: ignore[arg-type]
        there = disk / CODE.relative_to("/")
        assert (there / "train.py").read_bytes() == (EXAMPLE / "train.py").read_bytes()
    assert not CODE.exists()


def test_nothing_is_run_on_a_path_of_this_machine(tmp_path: Path, work: RealWork) -> None:
    with pytest.raises(LocalCloudError, match=f"{tmp_path}/other is not on the instance's own disk"):
        work.run(["rm", "--recursive", "--force", str(tmp_path / "other")], {}, tmp_path / "disk")


def test_what_git_cannot_do_is_an_error(tmp_path: Path, work: RealWork) -> None:
    (tmp_path / "disk").mkdir()
    with pytest.raises(subprocess.CalledProcessError):
        work.run(["git", "-C", str(tmp_path / "disk"), "fetch", f"{HOST}/moon"], {}, tmp_path / "disk")


def test_it_saves_at_sigterm_and_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    clock, whole = Clock(), Clock()
    (tmp_path / "whole").mkdir()
    arguments = ["--steps", "400", "--checkpoint-every", "50"]
    assert ended(started(tmp_path / "whole", whole, *arguments), whole) == 0
    slow = [*arguments, "--step-seconds", "0.005"]
    first = started(tmp_path, clock, *slow)
    while first.step < 75:
        clock.now += 10
        assert first.poll() is None
    first.signal(SIGTERM)
    at = clock.now
    assert first.poll() == 0
    assert clock.now == at  # it saved, however long that took
    assert not (tmp_path / "done").exists()
    saved = first.step  # between two checkpoints
    second = started(tmp_path, clock, *slow)
    assert 75 <= second.first_step == saved < 400
    clock.now += 30
    assert second.poll() is None
    second.signal(SIGKILL)
    assert second.poll() == -SIGKILL
    assert ended(started(tmp_path, clock, *arguments), clock) == 0
    assert (tmp_path / "done").exists()
    assert (tmp_path / "artifacts/model.json").read_bytes() == (
        tmp_path / "whole/artifacts/model.json"
    ).read_bytes()


def test_a_checkpoint_that_is_not_whole_is_not_resumed_from(tmp_path: Path) -> None:
    clock = Clock()
    assert ended(started(tmp_path, clock, "--steps", "100", "--checkpoint-every", "40"), clock) == 0
    good = (tmp_path / "artifacts/model.json").read_bytes()
    newest, *others = sorted((tmp_path / "checkpoints").glob("step-*.json"), reverse=True)
    newest.write_text(newest.read_text()[:100])
    others[0].write_text(json.dumps({"sha256": "0" * 64, "state": json.dumps({"step": 80, "weights": []})}))
    assert ended(started(tmp_path, clock, "--steps", "100", "--checkpoint-every", "40"), clock) == 0
    assert (tmp_path / "artifacts/model.json").read_bytes() == good
    said = (tmp_path / "output").read_text()
    assert said.count("is not whole") == 2
    assert "from step 40" in said


def test_it_has_the_time_that_passes_for_everybody_else(tmp_path: Path) -> None:
    clock, script = Clock(), tmp_path / "sleeps.py"
    script.write_text("import time\ntime.sleep(60)")
    process, begin = started(tmp_path, clock, script=script), time.perf_counter()
    clock.now += PACE
    assert process.poll() is None
    assert time.perf_counter() - begin >= 0.99
    process.signal(SIGKILL)


def test_who_ignores_sigterm_ends_the_rehearsal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpu_spot.nodes.real.SAVES_IN", 0.2)
    script = tmp_path / "deaf.py"
    script.write_text(
        "import signal, time, pathlib\nsignal.signal(15, signal.SIG_IGN)\n"
        f"pathlib.Path({str(tmp_path / 'up')!r}).touch()\ntime.sleep(60)"
    )
    process = started(tmp_path, Clock(), script=script)
    while not (tmp_path / "up").exists():
        time.sleep(0.01)
    process.signal(SIGTERM)
    with pytest.raises(LocalCloudError, match="goes on"):
        process.poll()
    process.signal(SIGKILL)


def test_the_script_of_its_market_closes_three_zones() -> None:
    zones = ("c", "a", "b")
    traces = closing(zones)
    assert [trace.name for trace in traces] == ["a", "b", "c"]
    for minute in range(600):
        assert minute in range(100, 110) or any(trace.samples[minute] for trace in traces)
    with pytest.raises(LocalCloudError, match="2 zones"):
        closing(("a", "b"))
