"""A job's real command on a simulated instance, paced by simulated time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import cycle, pairwise
from pathlib import Path
from signal import SIGKILL, SIGTERM
from typing import Any, Final
from urllib.parse import urlsplit

import pytest

from contracts.agent.config import Training
from market.supply.trace import PoolTrace
from pulumi_on_moto.errors import LocalCloudError
from rehearsal.machines import boot, shared
from rehearsal.rehearse import ProgressListener, RehearsalOptions, rehearse
from rehearsal.results.summary import summarise
from tests.apart import apart
from tests.e2e.world import REPOSITORY, living, load
from tests.real.job import code_host, repository
from tests.real.job.commands import PLAYED, RealProcess, RealWork, begins_at, digests, is_at
from tests.real.job.repository import CheckpointDates, stamp
from tests.real.service_host import kill_all
from userdata.agent.machine.errors import AgentError
from userdata.agent.machine.host import Argv, Variables
from userdata.agent.work.training.checkout import checkout

HOST: Final = "https://git.example.org"
FOLDER: Final = "examples/training"
MINUTES: Final = 6000
"""Length of the scripted market; the job finishes long before, even on a slow machine."""
LOSSES: Final = 3
"""How often the only open zone closes before all zones stay open."""
_FIRST, _STAY = 20, 25
"""Minute of the first closing, and minutes between two. A move takes about five minutes."""
_REFUSED_AT, _REFUSED_FOR = 2, 10
"""Index of the closing at which all zones lose Spot capacity, and its minutes: On-Demand replaces it."""


def closing(zones: tuple[str, ...]) -> tuple[PoolTrace, ...]:
    """Return the market: one zone is open at a time; ``LOSSES`` times it closes and the next opens."""
    if len(zones) < 2:
        raise LocalCloudError(f"the group has {len(zones)} zone, at least two are needed")
    names = sorted(zones)
    zone_cycle = cycle(range(len(names)))  # indices of the open zone
    is_open = [next(zone_cycle)] * _FIRST
    for loss in range(LOSSES):
        refused = _REFUSED_FOR if loss == _REFUSED_AT else 0
        is_open += [-1] * refused + [next(zone_cycle)] * (_STAY - refused)
    return tuple(
        PoolTrace(
            zone,
            60.0,
            tuple(int(minute >= len(is_open) or is_open[minute] == zone_index) for minute in range(MINUTES)),
        )
        for zone_index, zone in enumerate(names)
    )


@dataclass(frozen=True, slots=True)
class Undisturbed:
    """Result of an uninterrupted run: SHA-256 of each artifact, and seconds of the steps."""

    results: Mapping[str, str]
    seconds: float


def undisturbed(
    training: Training, source: Path, folder: Path, environment: Mapping[str, str]
) -> Undisturbed:
    """Run the command once in ``source`` and wait for its end; its files are written below ``folder``."""
    folders = {"CHECKPOINTS": "checkpoints", "ARTIFACTS": "artifacts", "SCRATCH": "scratch"}
    files = {"DONE": "done", "TELL": "tell", "NOTICE": "notice"}
    for name in folders.values():
        (folder / name).mkdir(parents=True)
    places_here = {f"GPU_SPOT_{name}": str(folder / path) for name, path in (folders | files).items()}
    output_file, began = folder / "output", time.perf_counter()
    first = None
    with output_file.open("wb") as output:
        process = subprocess.Popen(
            list(training.command),
            cwd=source,
            env={**environment, **places_here},
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        while process.poll() is None:
            if first is None and begins_at(output_file, folder / "tell") is not None:
                first = time.perf_counter()
            time.sleep(0.02)
    finally:
        kill_all(process.pid)
        process.wait()
    if process.returncode:
        last = output_file.read_text(errors="replace").splitlines()[-1:] or ["no output"]
        raise LocalCloudError(f"{' '.join(training.command)}: exit {process.returncode}: {last[0]}")
    return Undisturbed(digests(folder / "artifacts"), time.perf_counter() - (first or began))


def played(steps: int, seed: int) -> dict[str, Any]:
    """Run the shipped job in the stack ``research`` for ``steps`` steps, half of the losses announced."""
    replaced: dict[str, Any] = {
        "repository": f"{HOST}/{FOLDER}",
        "revision": repository.commit_of(REPOSITORY / FOLDER),
        "command": ["python3", "train.py", "--steps", str(steps)],
        "python": None,
        "environment": {},
    }
    config = load("research", {f"training[0].{key}": value for key, value in replaced.items()})
    with living(config, seed) as world, tempfile.TemporaryDirectory() as temporary:
        folder, source = Path(temporary), REPOSITORY / FOLDER
        agent = boot.parse(world.cloud.boot_data("resnet")).agent
        training = agent.training
        assert training is not None
        assert agent.volume is not None
        assert training.repository == f"{HOST}/{FOLDER}"
        assert repository.made_of(source, folder / "served" / FOLDER) == training.revision
        shared.stand_in(world.clients, agent.volume.dataset)
        _download(world.clients("s3"), agent.volume.dataset, folder / "datasets")
        ours = {
            "GPU_SPOT_JOB": training.job,
            "PYTHONUNBUFFERED": "1",
            "PYTHONPATH": str(REPOSITORY / "packages/spot-training/src"),
        }
        around = {**os.environ, **training.environment, **ours}
        around["GPU_SPOT_DATASETS"] = str(folder / "datasets")
        alone = undisturbed(training, source, folder / "alone", around)
        pace = LOSSES * _STAY * 60 / max(alone.seconds, 1.0)

        def state() -> str:
            key = {"job": {"S": training.job}}
            item = world.clients("dynamodb").get_item(TableName=training.job_table, Key=key).get("Item", {})
            return str(item.get("state", {}).get("S"))

        with code_host.serving(folder / "served", folder / "tls") as host:
            work = RealWork(host, HOST, pace, ours)
            market = closing(world.cloud.group("resnet").zones)
            options = RehearsalOptions("resnet", MINUTES / 60, (), market, 1, 0.5, seed)
            run = rehearse(
                options, world.cloud, ProgressListener(), job=work.node(), is_over=lambda: state() == "done"
            )
        return {
            "summary": summarise(run),
            "state": state(),
            "results": work.results,
            "undisturbed": alone.results,
        }


def _download(s3: Any, uri: str, to: Path) -> None:
    to.mkdir()
    parts = urlsplit(uri)
    bucket, prefix = parts.netloc, parts.path.lstrip("/")
    for entry in s3.list_objects_v2(Bucket=bucket, Prefix=prefix).get("Contents", []):
        body = s3.get_object(Bucket=bucket, Key=entry["Key"])["Body"].read()
        (to / Path(entry["Key"]).name).write_bytes(body)


EXAMPLE = Path(__file__).resolve().parents[2] / "examples/training"
PACE = 360.0
CODE = Path("/var/lib/gpu-spot/code/resnet")


class Clock:
    """Simulated seconds, moved by hand."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


def started(
    tmp_path: Path, clock: Clock, *arguments: str, script: Path = EXAMPLE / "train.py", **variables: str
) -> RealProcess:
    names = ("CHECKPOINTS", "ARTIFACTS", "DATASETS", "DONE", "TELL")
    places = {name: str(tmp_path / name.lower()) for name in names}
    environment = {f"GPU_SPOT_{name}": place for name, place in places.items()} | variables
    argv = [sys.executable, str(script), *arguments]
    return RealProcess(argv, environment, tmp_path, tmp_path, clock, PACE)


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
        yield RealWork(host, HOST, PACE)


def test_the_agents_checkout_brings_the_shipped_code_onto_the_instances_own_disk(
    tmp_path: Path, work: RealWork
) -> None:
    disk = tmp_path / "disk"

    class Host:
        def run(self, argv: Argv, timeout: float = 60, stdin: str = "", environment: Variables = None) -> str:
            return work.run(argv, environment or {}, disk) if argv[0] in PLAYED else ""

    training = job("python3", "train.py")
    for _ in range(2):  # again in the place of what was there
        checkout(Host(), training, CODE)  # type: ignore[arg-type]
        there = disk / CODE.relative_to("/")
        assert (there / "train.py").read_bytes() == (EXAMPLE / "train.py").read_bytes()
    assert not CODE.exists()


def test_nothing_is_run_on_a_path_of_this_machine(tmp_path: Path, work: RealWork) -> None:
    with pytest.raises(LocalCloudError, match=f"{tmp_path}/other is not on the instance's own disk"):
        work.run(["rm", "--recursive", "--force", str(tmp_path / "other")], {}, tmp_path / "disk")


def test_a_git_failure_is_an_error(tmp_path: Path, work: RealWork) -> None:
    (tmp_path / "disk").mkdir()
    with pytest.raises(AgentError, match="git: exit 128: "):
        work.run(["git", "-C", str(tmp_path / "disk"), "fetch", f"{HOST}/moon"], {}, tmp_path / "disk")


def test_it_saves_at_sigterm_and_resumes_to_identical_results(tmp_path: Path) -> None:
    clock, whole = Clock(), Clock()
    (tmp_path / "whole").mkdir()
    arguments = ["--steps", "400", "--checkpoint-every", "50"]
    assert ended(started(tmp_path / "whole", whole, *arguments), whole) == 0
    slow = [*arguments, "--step-seconds", "0.02"]
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
    assert said.count("is damaged") == 2
    assert "from step 40" in said


def test_it_has_the_time_that_passes_for_everybody_else(tmp_path: Path) -> None:
    clock, script = Clock(), tmp_path / "sleeps.py"
    script.write_text("import time\nprint('step 0', flush=True)\ntime.sleep(60)")
    process, begin = started(tmp_path, clock, script=script), time.perf_counter()
    clock.now += PACE
    assert process.poll() is None
    assert time.perf_counter() - begin >= 0.99
    process.signal(SIGKILL)


def test_a_job_that_ignores_sigterm_ends_the_rehearsal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.real.job.commands.SAVES_IN", 0.2)
    script = tmp_path / "deaf.py"
    script.write_text(
        "import signal, time\nsignal.signal(15, signal.SIG_IGN)\nprint('step 0', flush=True)\ntime.sleep(60)"
    )
    process = started(tmp_path, Clock(), script=script)
    process.signal(SIGTERM)
    with pytest.raises(LocalCloudError, match="still runs"):
        process.poll()
    process.signal(SIGKILL)


@pytest.mark.parametrize("zones", [("c", "a", "b"), ("b", "a"), ("d", "c", "b", "a")])
def test_the_script_of_its_market_closes_zone_after_zone_and_then_none(zones: tuple[str, ...]) -> None:
    traces = closing(zones)
    assert [trace.name for trace in traces] == sorted(zones)
    found = [tuple(trace.name for trace in traces if trace.samples[minute]) for minute in range(MINUTES)]
    assert [len(names) for names in found].count(0) == 10  # on-demand stands in
    stretches = [
        names for names, before in zip(found, ["", *found], strict=False) if names != before and names
    ]
    *alone, last = stretches
    assert last == tuple(sorted(zones))
    assert len(alone) == LOSSES + 1
    assert {names[0] for names in alone} == set(zones)
    assert all(here != there for here, there in pairwise(alone))


def test_a_market_of_one_zone_has_nowhere_to_go() -> None:
    with pytest.raises(LocalCloudError, match="the group has 1 zone, at least two are needed"):
        closing(("a",))


def test_time_stands_still_while_it_starts(tmp_path: Path) -> None:
    clock, script = Clock(), tmp_path / "slow.py"
    script.write_text("import time\ntime.sleep(0.3)\nprint('from step 7', flush=True)\ntime.sleep(60)")
    process = started(tmp_path, clock, script=script)
    assert process.first_step == process.step == 7
    begin = time.perf_counter()
    clock.now += 0.5 * PACE
    assert process.poll() is None
    assert time.perf_counter() - begin >= 0.49  # the time that it took to start is not counted in
    process.signal(SIGKILL)


def test_steps_are_read_from_the_progress_file_too(tmp_path: Path) -> None:
    clock, script = Clock(), tmp_path / "quiet.py"
    script.write_text(
        "import json, os, pathlib, time\n"
        "pathlib.Path(os.environ['GPU_SPOT_TELL']).write_text(json.dumps({'step': 41, 'steps': 90}))\n"
        "time.sleep(60)"
    )
    (tmp_path / "tell").write_text('{"step": 7}')  # of who ran before
    process = started(tmp_path, clock, script=script)
    assert (process.first_step, process.step) == (41, 41)
    process.signal(SIGKILL)
    for other in ("", "[]", '{"step": null}', '{"steps": 3}'):
        (tmp_path / "tell").write_text(other)
        assert is_at(tmp_path / "output", tmp_path / "tell") == 0


def test_the_interruption_rate_is_scaled_to_its_own_time(tmp_path: Path) -> None:
    script = tmp_path / "variables.py"
    script.write_text("import os\nprint('step 0', os.environ['GPU_SPOT_INTERRUPTIONS_PER_HOUR'])")
    started(tmp_path, Clock(), script=script, GPU_SPOT_INTERRUPTIONS_PER_HOUR="0.5").signal(SIGKILL)
    assert float((tmp_path / "output").read_text().split()[-1]) == 0.5 * PACE


def test_a_launchers_children_die_with_it(tmp_path: Path) -> None:
    script = tmp_path / "launcher.py"
    script.write_text(
        "import subprocess, time\n"
        "child = subprocess.Popen(['sleep', '60'], start_new_session=True)\n"
        "print('step 0', child.pid, flush=True)\ntime.sleep(60)"
    )
    process = started(tmp_path, Clock(), script=script)
    child = int((tmp_path / "output").read_text().split()[-1])
    os.kill(child, 0)
    process.signal(SIGKILL)
    while True:  # until init has taken it away
        try:
            os.kill(child, 0)
        except ProcessLookupError:
            break
        state = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0]
        if state == "Z":
            break
        time.sleep(0.01)


def job(*command: str) -> Training:
    return Training(
        job="resnet",
        job_table="jobs",
        repository=f"{HOST}/examples/training",
        revision=repository.commit_of(EXAMPLE),
        command=command,
        user="gpu-spot-job",
        finished_parameter="/finished",
    )


def test_an_undisturbed_run_returns_results_and_duration(tmp_path: Path) -> None:
    around = {"PATH": os.environ["PATH"], "GPU_SPOT_DATASETS": str(tmp_path)}
    arguments = ("train.py", "--steps", "50", "--step-seconds", "0.01")
    alone = undisturbed(job("python3", *arguments), EXAMPLE, tmp_path / "alone", around)
    assert list(alone.results) == ["model.json"]
    assert alone.seconds >= 0.5
    with pytest.raises(LocalCloudError, match=r"python3 train.py --moon: exit 2: .*--moon"):
        undisturbed(job("python3", "train.py", "--moon"), EXAMPLE, tmp_path / "b", around)


@pytest.mark.soak
def test_the_shipped_job_runs_from_clone_to_done_through_its_losses() -> None:
    done = apart(played, steps=1200, seed=5)
    summary, moves = done["summary"], done["summary"]["moves"]
    assert (done["state"], list(done["results"])) == ("done", ["model.json"])
    assert done["results"] == done["undisturbed"]
    assert sum(move["cause"] in ("notice", "loss") for move in moves) >= 3
    assert summary["interruptions"] >= 1  # those of the first hour are warm-up
    assert len({move["to"]["zone"] for move in moves}) == 3
    assert {"notice", "loss"} <= {move["cause"] for move in moves}
    assert any(move["from"]["volume"] != move["to"]["volume"] for move in moves)
    assert all(move["steps_lost"] == 0 for move in moves if move["cause"] != "loss")
    assert all(0 <= move["steps_lost"] <= 200 for move in moves if move["cause"] == "loss")
    assert all(move["content"]["equal"] and move["content"]["files"] > 24 for move in moves)


def write(folder: Path, name: str, at: float) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    os.utime(path, (at, at))
    return path


@pytest.mark.parametrize("is_signalled", [True, False])
def test_files_written_during_the_run_and_the_final_save(tmp_path: Path, is_signalled: bool) -> None:
    old = write(tmp_path, "step-1", 500.0)  # of the one before, in simulated time
    here, simulated = [9000.0], [1000.0]
    dates = CheckpointDates(tmp_path, lambda: simulated[0], lambda: here[0])
    half = write(tmp_path, "deep/step-2", 9005.0)
    here[0], simulated[0] = 9010.0, 4600.0  # ten seconds here were an hour there
    if is_signalled:
        dates.note_signal()
        here[0] = 9012.0  # it takes its time to save, and no time passes there
        saved = write(tmp_path, "step-3", 9011.5)
        dates.note_signal()
    else:
        saved = write(tmp_path, "step-3", 9010.0)
    dates.settle()
    assert old.stat().st_mtime == 500.0
    assert half.stat().st_mtime == pytest.approx(2800.0)
    assert saved.stat().st_mtime == 4600.0
    dates.settle()
    assert half.stat().st_mtime == pytest.approx(2800.0)


def test_files_are_dated_by_their_own_clock(tmp_path: Path) -> None:
    here = stamp(tmp_path / "stamp")
    first = here()
    path = tmp_path / "file"
    path.touch()
    assert first <= path.stat().st_mtime <= here()
