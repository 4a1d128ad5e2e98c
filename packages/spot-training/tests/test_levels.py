"""Two levels of storage: a crash resumes from this machine's, a lost machine from the one that others see."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from spot_training import Checkpointer, Interval, Keep, OtherRunError, Progress, SaveError, Spot
from spot_training.identity import TrainingRun
from spot_training.levels import levels as levels_module
from spot_training.levels import local_level as local_module
from spot_training.levels.local_level import LocalLevel
from support.disk import Clock, Disk, FakeNotice, content, refusing
from support.levels import Machine, newest, state_after
from support.ranks import Thread, together
from support.waiting import wait_until

STEPS = 10_000
"""More than a process of a test gets to take."""
FIRST = TrainingRun(script="train.py", arguments=["--lr", "0.1"])
SECOND = TrainingRun(script="train.py", arguments=["--lr", "0.01"])


@pytest.fixture(autouse=True)
def no_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GPU_SPOT_LOCAL_CHECKPOINTS", raising=False)


def resumed(process: Any) -> tuple[int, str]:
    word, step, level, _ = process.stdout.readline().split()
    assert word == "from", process.stderr.read()
    return int(step), level


def test_a_killed_process_resumes_here_a_lost_machine_there_and_a_notice_takes_all_along(
    tmp_path: Path,
) -> None:
    machine = Machine(tmp_path, STEPS)
    assert resumed(machine.start()) == (0, "none")
    machine.wait_for(50)
    machine.kill()
    here, there = newest(machine.local), newest(machine.far)
    assert there < here
    assert resumed(machine.start()) == (here, "local")
    machine.wait_for(here + 50)
    machine.kill()
    machine.lose()
    there = newest(machine.far)
    process = machine.start()
    assert resumed(process) == (there, "far")
    machine.wait_for(there + 50)
    before = newest(machine.far)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=60)
    stopped = int(out.removeprefix("stopped "))
    assert process.returncode == 0, err
    assert before < newest(machine.far) == stopped
    machine.lose()
    machine.steps = stopped + 10
    process = machine.start()
    out, err = process.communicate(timeout=60)
    assert out.splitlines() == [out.splitlines()[0], f"ended {state_after(machine.steps)}"]
    assert out.startswith(f"from {stopped} far ")
    assert newest(machine.local) == -1  # nothing of a complete training stays
    assert newest(machine.far) == machine.steps


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(3))
def test_any_kills_and_losses_change_no_bit(tmp_path: Path, seed: int) -> None:
    chance, machine = random.Random(seed), Machine(tmp_path, 1500, far_seconds=0.2)
    outcome, counts = "", {"killed": 0, "lost": 0, "noticed": 0}
    while not outcome.startswith("ended"):
        process = machine.start()
        kind = chance.choice(sorted(counts))
        try:
            out, err = process.communicate(timeout=0.25 + 0.6 * chance.random())
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGTERM if kind == "noticed" else signal.SIGKILL)
            out, err = process.communicate(timeout=60)
            counts[kind] += 1
            if kind == "lost":
                machine.lose()
        outcome = (out.splitlines() or [""])[-1]
        assert "Traceback" not in err, err
    assert outcome == f"ended {state_after(1500)}"
    assert sum(counts.values()) > 3


class Training:
    """A training in this process with a clock of its own: a save takes a second, a copy ten."""

    def __init__(self, folder: Path, run: TrainingRun | None = FIRST, *, local: Path | None = None) -> None:
        self.clock, self.notice = Clock(), FakeNotice()
        self.far, self.root = folder / "far", local or folder / "local"
        self.local = local_module.local_folder(self.root, str(self.far))
        prices = {"dollars_per_gb": 0.06, "dollars_per_hour": 0.35}
        self.spot = Spot(
            checkpointer=Checkpointer(self.far, run=run, retry_policy=self.clock.retry_policy()),
            notice=self.notice,
            interval=Interval(per_hour=0.5, environment={}, **prices),
            progress=Progress(environment={}),
            clock=self.clock,
            local=self.root,
            has_randomness=False,  # disks of a few kB
        )
        level = self.spot._levels._local
        assert level is not None
        self._copy_up = level.copy_up
        level.copy_up = self._copy  # type: ignore[method-assign]

    def _copy(self, *arguments: Any) -> int:
        self.clock.sleep(10)
        return self._copy_up(*arguments)

    def save(self, step: int, **options: Any) -> bool:
        """Save a step."""

        def write(folder: Path) -> None:
            self.clock.sleep(1)
            content(f"at {step}")(folder)

        is_saved = self.spot.save(step, write, **options)
        self.spot._levels._copier.wait()
        return is_saved

    def restore(self) -> tuple[int, str] | None:
        """Return the restored step and level."""
        saved = self.spot.restore()
        if saved is None:
            return None
        assert (saved.part() / "state").read_text() == f"at {saved.step}"
        return saved.step, "local" if saved.path.is_relative_to(self.root) else "far"

    def saved(self, *steps: int) -> Training:
        """Restore, and save these steps."""
        self.restore()
        for step in steps:
            self.save(step)
        return self

    def crash(self) -> None:
        """End as a killed process does."""
        self.spot.checkpointer.close()
        if (local := self.spot._levels._local) is not None:
            local.close()


@pytest.fixture
def training(tmp_path: Path) -> Iterator[Callable[..., Training]]:
    started: list[Training] = []

    def start(*arguments: Any, folder: Path = tmp_path, **options: Any) -> Training:
        started.append(Training(folder, *arguments, **options))
        return started[-1]

    yield start
    for one in started:
        one.crash()


def test_the_first_save_says_what_a_lost_machine_loses(
    training: Callable[..., Training], capsys: pytest.CaptureFixture[str]
) -> None:
    one = training()
    assert one.restore() is None
    one.save(10)
    [price, line] = capsys.readouterr().err.splitlines()
    assert "a save writes" in price
    assert line == (
        f"spot_training: saves in {one.local} every 119 s, copied to {one.far} every 369 s and at a notice:"
        " a machine that is lost without one loses up to 488 s"
    )
    one.save(20)
    assert (newest(one.local), newest(one.far)) == (20, 10)
    one.clock.sleep(600)
    one.save(30)
    assert (newest(one.local), newest(one.far)) == (30, 30)
    assert [path.name for path in one.local.glob("step-*")] == ["step-000000000030"]  # it is bounded


def test_another_machine_that_went_on_counts_more_than_what_is_here(
    training: Callable[..., Training], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here = training().saved(10, 50)
    here.crash()
    second = training(local=tmp_path / "second")
    assert second.restore() == (10, "far")
    second.save(20)
    second.crash()
    again = training()
    assert again.restore() == (20, "far")
    assert f"{again.local}: step-000000000050 not used: another process went on from {again.far}" in (
        capsys.readouterr().err
    )
    assert newest(again.local) == 50  # it stays until this history comes there
    again.save(60)
    again.save(70)
    assert [path.name for path in again.local.glob("step-*")] == ["step-000000000070"]


@pytest.mark.parametrize("is_full", [False, True])
def test_a_restored_checkpoint_stays_while_the_script_has_it_and_it_fits(
    training: Callable[..., Training], monkeypatch: pytest.MonkeyPatch, *, is_full: bool
) -> None:
    one = training().saved(10, 20)
    one.crash()
    again = training()
    saved = again.spot.restore()
    assert saved is not None
    if is_full:  # until another one is removed
        monkeypatch.setattr(
            local_module.LocalFiles, "free_bytes", lambda _, at: 10_000 * (2 - len([*at.glob("step-*")]))
        )
    for step in (30, 40):
        again.save(step)
        assert saved.path.exists() == (not is_full or step == 30)
    names = [path.name for path in again.local.glob("step-*")]
    del saved
    again.save(50)
    assert len(names) == 2 - is_full
    assert [path.name for path in again.local.glob("step-*")] == ["step-000000000050"]


@pytest.mark.parametrize(("free", "here"), [(2_100, 10), (2_099, -1)])
def test_the_first_save_is_here_only_if_two_states_fit(
    training: Callable[..., Training], monkeypatch: pytest.MonkeyPatch, free: int, here: int
) -> None:
    monkeypatch.setattr(local_module.LocalFiles, "free_bytes", lambda self, folder: free)
    (one := training()).save(10, size=1000)
    assert (newest(one.local), newest(one.far)) == (here, 10)


def test_a_second_machine_that_saved_nothing_changes_nothing(
    training: Callable[..., Training], tmp_path: Path
) -> None:
    here = training().saved(10, 50)
    here.crash()
    second = training(local=tmp_path / "second")
    assert second.restore() == (10, "far")
    second.crash()
    again = training()
    assert again.restore() == (50, "local")
    again.save(60, last=True)
    assert newest(again.far) == 60


def test_a_damaged_local_checkpoint_stays_and_the_far_one_is_restored(
    training: Callable[..., Training], caplog: pytest.LogCaptureFixture
) -> None:
    one = training().saved(10, 20)
    one.crash()
    os.truncate(one.local / "step-000000000020" / "rank-00000" / "state", 1)
    again = training()
    assert again.restore() == (10, "far")
    assert "step-000000000020 is skipped: rank-00000/state has 1 of 5 bytes" in caplog.text
    assert (one.local / ".bad-step-000000000020").is_dir()


def test_another_runs_here_is_refused_and_stays(training: Callable[..., Training]) -> None:
    one = training().saved(10, 20)
    one.crash()
    other = training(SECOND)
    with pytest.raises(OtherRunError, match=f"{one.local}/step-000000000020 is of run {FIRST.id}"):
        other.restore()
    assert (newest(one.local), newest(one.far)) == (20, 10)
    assert training().restore() == (20, "local")


def test_what_is_to_stay_is_saved_there_and_remembered_here(training: Callable[..., Training]) -> None:
    one = training().saved(10)
    assert one.spot.keep(metric=0.5)
    one.save(20)
    one.spot.keep(pin="warm")
    one.save(30)
    one.save(40)
    one.crash()
    again = training()
    assert again.restore() == (40, "local")
    assert not again.spot.keep(metric=0.6)
    for step in range(50, 100, 10):
        again.clock.sleep(600)
        again.save(step)
    retained = again.spot.checkpointer.retained
    assert (retained.best and retained.best.step, dict(retained.pins)) == (20, {"warm": 30})
    assert sorted(int(path.name[5:]) for path in again.far.glob("step-*")) == [20, 30, 70, 80, 90]


def test_the_same_state_is_not_written_twice_at_a_notice(training: Callable[..., Training]) -> None:
    one = training().saved(10, 20)
    one.notice.received = True  # type: ignore[misc]

    def write(folder: Path) -> None:
        raise AssertionError("written again")

    assert one.spot.save(20, write)
    assert newest(one.far) == 20


def test_a_restored_step_is_not_saved_again(training: Callable[..., Training]) -> None:
    """Lightning's state is whole only after the first step of a process."""
    one = training().saved(10)
    one.crash()
    shutil.rmtree(one.root)
    again = training()
    assert again.restore() == (10, "far")
    for options in ({}, {"last": True}):
        assert again.save(10, **options)
        assert (newest(again.local), again.clock.now) == (-1, Clock().now)


def test_a_state_that_cannot_be_saved_at_a_notice_lets_the_last_one_arrive(
    training: Callable[..., Training],
) -> None:
    one = training().saved(10, 20)
    one.notice.received = True  # type: ignore[misc]

    def write(folder: Path) -> None:
        raise SaveError("the state cannot be copied")

    with pytest.raises(SaveError, match="cannot be copied"):
        one.spot.save(30, write)
    assert newest(one.far) == 20


@pytest.mark.parametrize("fault", ["a file", "another user", "full", "full later"])
def test_local_storage_that_fails_is_a_line(
    training: Callable[..., Training],
    tmp_path: Path,
    fault: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if fault == "a file":
        (tmp_path / "local").write_text("")
    if fault == "another user":
        monkeypatch.setattr(os, "geteuid", lambda: 12345)
    if fault == "full":
        monkeypatch.setattr(local_module.LocalFiles, "touch", Disk(refusing(28, "make")).touch)
    one = training()
    assert one.restore() is None
    assert one.save(10)
    if fault == "full later":
        monkeypatch.setattr(local_module.LocalFiles, "free_bytes", lambda self, folder: 1000)
    assert one.save(20)
    assert one.save(30)
    assert newest(one.far) == 30
    [line] = [text for record in caplog.records if "local storage" in (text := record.getMessage())]
    assert line.startswith(f"local storage is not used any more, saves go to {one.far}: ")
    if fault == "full later":
        assert "No space left on device" in line
        one.crash()
        monkeypatch.undo()
        assert training().restore() == (30, "far")


def test_a_copy_gives_way_to_the_last_state(
    training: Callable[..., Training], monkeypatch: pytest.MonkeyPatch
) -> None:
    copying, seen = threading.Event(), []

    def copy_up(self: LocalLevel, step: int, check: Callable[[], object] = lambda: None) -> int:
        copying.set()
        while True:
            try:
                check()
            except SaveError:
                seen.append(step)
                raise

    monkeypatch.setattr(LocalLevel, "copy_up", copy_up)
    one = training()
    one.restore()
    one.spot.save(10, content("at 10"))
    assert copying.wait(60)
    one.spot.save(20, content("at 20"), last=True)
    assert seen == [10]
    assert newest(one.far) == 20


def test_the_end_without_a_last_save_brings_the_newest_there(training: Callable[..., Training]) -> None:
    one = training().saved(10, 20)
    one.spot.finish(20)
    assert newest(one.far) == 20


def test_the_variable_names_the_directory_and_an_empty_argument_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPU_SPOT_LOCAL_CHECKPOINTS", str(tmp_path / "local"))
    options: dict[str, Any] = {"notice": FakeNotice(), "progress": Progress(environment={}), "run": FIRST}
    for local, is_used in ((None, True), ("", False)):
        far = tmp_path / f"far-{is_used}"
        one = Spot(far, local=local, **options)
        one.restore()
        one.save(10, content("at 10"))
        wait_until(lambda far=far: newest(far) == 10)  # type: ignore[misc]
        assert (newest(local_module.local_folder(tmp_path / "local", str(far))) == 10) == is_used
        one.close()


def test_all_ranks_save_and_resume_here(tmp_path: Path) -> None:
    def act(ranks: Thread) -> object:
        far = Checkpointer(tmp_path / "far", ranks=ranks)
        levels = levels_module.CheckpointLevels(far, Interval(environment={}), tmp_path / "local")
        saved = levels.restore()
        text = [(saved.part(rank) / "state").read_text() for rank in range(2)] if saved else []
        options: dict[str, Any] = {"replace": False, "keep": None, "is_last": False}
        for step in (10, 20):
            begin = step + (saved.step if saved else 0)
            is_far = levels.save(begin, content(f"rank {ranks.rank} at {begin}"), {}, **options)
            levels.saved(0.001, is_far=is_far)
            levels._copier.wait()
        levels.save(begin, content("never"), {}, **(options | {"is_last": True, "keep": Keep(pins=["x"])}))
        if ranks.rank == 0:
            levels.end(is_complete=False)
        return [saved.step if saved else 0, text, far.last_step, dict(far.retained.pins)]

    assert together(2, act) == [[0, [], 20, {"x": 20}]] * 2
    shutil.rmtree(tmp_path / "far" / "step-000000000020")
    (text,) = {str(end) for end in together(2, act)}
    assert text == str([20, ["rank 0 at 20", "rank 1 at 20"], 40, {"x": 40}])


def test_ranks_on_two_machines_use_no_local_storage(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = iter(range(2))
    monkeypatch.setattr("spot_training.levels.local_level.machine", lambda: str(next(numbers)))

    def act(ranks: Thread) -> object:
        far = Checkpointer(tmp_path / "far", ranks=ranks)
        levels = levels_module.CheckpointLevels(far, Interval(environment={}), tmp_path / "local")
        saved = levels.restore()
        return [saved, levels._local]

    assert together(2, act) == [[None, None]] * 2
    assert "the ranks must be on one machine, not on 2" in caplog.text


def test_memory_counts_as_full_before_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    information, group = tmp_path / "meminfo", tmp_path / "group"
    information.write_text("MemTotal: 9 kB\nMemAvailable:      200 kB\n")
    assert local_module.available_memory(information, group) == [200 * 1024]
    group.mkdir()
    (group / "memory.max").write_text("1000\n")
    (group / "memory.current").write_text("900\n")
    (group / "memory.stat").write_text("anon 5\ninactive_file 30\nactive_file 20\nfile 99\n")
    assert local_module.available_memory(information, group) == [200 * 1024, 150]
    (group / "memory.max").write_text("max\n")
    assert local_module.available_memory(information, group) == [200 * 1024]
    monkeypatch.setattr(local_module, "available_memory", lambda: [77])
    for is_memory in (True, False):
        monkeypatch.setattr(local_module, "_is_in_memory", lambda folder, is_memory=is_memory: is_memory)
        assert (local_module.LocalFiles().free_bytes(tmp_path) == 77) == is_memory
    monkeypatch.undo()
    mounts = tmp_path / "mounts"
    assert local_module._is_in_memory(tmp_path, mounts)  # unknown
    mounts.write_text(f"/dev/vda / xfs rw 0 0\ntmpfs /dev/shm tmpfs rw 0 0\nx {tmp_path} ext4 rw 0 0\n")
    assert local_module._is_in_memory(Path("/dev/shm/a"), mounts)
    assert not local_module._is_in_memory(tmp_path / "a", mounts)
    assert not local_module._is_in_memory(Path("/srv"), mounts)


def test_the_directory_is_private(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    local_module.make_private(folder)
    assert folder.stat().st_mode & 0o777 == 0o700
    local_module.make_private(folder)
