"""Background snapshots of the volume during training, and their use in a migration."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.node import unit_files
from tests.node.configs import FakeClock
from tests.node.crash import Region
from tests.node.world import WorldEbs, WorldLease
from tests.node.world_host import WorldHost
from tests.waiting import TIMEOUT_SECONDS, wait_until
from userdata.agent.machine import freeze
from userdata.agent.machine.background import at_once
from userdata.agent.machine.errors import AgentError, TransientError
from userdata.agent.machine.host import SystemHost
from userdata.agent.storage.volume.background_snapshots import BackgroundSnapshots, SnapshotSchedule, is_due

PLACE = Path("/dltraining")


class Training:
    """A training instance with its own volume, which writes checkpoints on request."""

    def __init__(self, clock: FakeClock, every: float = 1800.0) -> None:
        self.region = Region("calm", 1, clock)
        self.clock, self.world = self.region.clock, self.region.world
        self.held = self.region.executor("i-x", "a").up()
        self.host = WorldHost(self.world, "i-x")
        self.checkpoint, self.is_wanted, self.every = 0.0, True, every
        self.ahead = self.again()

    def again(self) -> BackgroundSnapshots:
        """Restart the agent's process on the same volume."""
        schedule = SnapshotSchedule(self.every, lambda: self.checkpoint, lambda: self.is_wanted)
        ebs, leases = WorldEbs(self.world, "i-x", "a"), WorldLease(self.world, "i-x")
        return BackgroundSnapshots(self.held, PLACE, ebs, leases, self.host, self.clock, schedule, at_once)

    def train(self, seconds: float, writes: bool = True) -> list[str]:
        """Train on; return the snapshots that there are."""
        end = self.clock.monotonic() + seconds
        while self.clock.monotonic() < end:
            self.clock.sleep(10)
            WorldLease(self.world, "i-x").renew(self.held.token)
            if writes:
                self.checkpoint = self.clock.wall()
            self.ahead.poll()
        return list(self.world.copies)


def test_one_is_due_where_there_is_none_or_something_new_for_long_enough() -> None:
    assert is_due(1000.0, None, 0.0, 1800.0)
    assert not is_due(1000.0, 900.0, 950.0, 1800.0)
    assert not is_due(9000.0, 900.0, 800.0, 1800.0)
    assert is_due(9000.0, 900.0, 8000.0, 1800.0)


def test_the_first_is_taken_at_once_and_others_at_the_interval_if_there_is_something_new(
    clock: FakeClock,
) -> None:
    training = Training(clock)
    assert len(first := training.train(60)) == 1
    assert training.train(1700) == first
    second = training.train(200)
    assert len(second) == 1
    assert second != first  # it is whole, so the older one is gone
    third = training.train(4000, writes=False)  # of what was written since
    assert third != second
    assert training.train(4000, writes=False) == third
    training.is_wanted = False
    assert training.train(4000) == third


def test_never_more_than_two_and_never_two_under_way(
    clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.node.world.SNAPSHOT_SECONDS", 5000.0)
    training = Training(clock, every=60.0)
    assert len(training.train(4000)) == 1
    assert len(training.train(3000)) == 2
    training.ahead = training.again()
    assert len(training.train(2000)) == 2


def test_after_a_restart_of_the_agent_the_interval_goes_on(clock: FakeClock) -> None:
    training = Training(clock)
    first = training.train(1000)
    training.ahead = training.again()
    assert training.train(700) == first
    assert training.train(200) != first


def test_writers_are_frozen_exactly_until_the_snapshot_starts(clock: FakeClock) -> None:
    training = Training(clock)
    frozen: list[bool] = []
    training.world.before = lambda _, operation: (
        frozen.append(training.world.disks[training.held.volume].frozen)
        if operation == "create_snapshot"
        else None
    )
    training.host.write("not flushed yet")
    [copy] = training.train(60)
    assert frozen == [True]
    assert not training.world.disks[training.held.volume].frozen
    assert "not flushed yet" in (training.world.copies[copy].content or ())


def test_a_refusal_thaws_and_is_tried_again(clock: FakeClock) -> None:
    training = Training(clock)
    refused: list[str] = []

    def refuse(instance: str, operation: str) -> None:
        if operation == "create_snapshot" and len(refused) < 2:
            refused.append(operation)
            raise TransientError("SnapshotCreationPerVolumeRateExceeded")

    training.world.before = refuse
    assert len(training.train(120)) == 1
    assert len(refused) == 2
    assert not training.world.disks[training.held.volume].frozen


def test_no_snapshot_is_taken_after_the_lease_is_lost(clock: FakeClock) -> None:
    training = Training(clock)
    training.world.item["token"] = {"N": "99"}
    training.ahead.poll()
    assert training.world.copies == {}
    assert ("i-x", "create_snapshot") not in training.world.calls


def test_a_failed_one_is_deleted_and_the_next_waits_for_the_interval(clock: FakeClock) -> None:
    training = Training(clock)
    [failed] = training.train(20)
    training.world.copies[failed].failed = True
    assert training.train(1000) == []
    assert len(training.train(1000)) == 1


def test_close_starts_no_snapshot_and_waits_for_the_running_one(clock: FakeClock) -> None:
    training = Training(clock)
    started, over = threading.Event(), threading.Event()

    def hold(instance: str, operation: str) -> None:
        if operation == "create_snapshot":
            started.set()
            over.wait(TIMEOUT_SECONDS)

    training.world.before = hold
    training.ahead.run_in_background = lambda work: threading.Thread(target=work, daemon=True).start()
    training.ahead.poll()
    assert started.wait(TIMEOUT_SECONDS)
    threading.Timer(0.2, over.set).start()
    training.ahead.close()
    assert over.is_set()
    assert not training.world.disks[training.held.volume].frozen
    assert len(training.train(4000)) == 1


# The guard, with real processes: `fsfreeze` is a script that writes down what it is asked.


@pytest.fixture
def fsfreeze(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    said = tmp_path / "said"
    for name, text in (("fsfreeze", f'echo "$1" >> {said}'), ("sync", f"echo sync >> {said}")):
        tool = tmp_path / "bin" / name
        tool.parent.mkdir(exist_ok=True)
        tool.write_text(f"#!/bin/sh\n{text}\n")
        tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    return lambda: said.read_text().split() if said.exists() else []


def run(argv: Sequence[str]) -> str:
    return SystemHost().run(argv, 60)


def test_it_thaws_after_the_body_and_after_an_error_in_it(fsfreeze: Callable[[], list[str]]) -> None:
    with freeze.frozen(lambda argv: SystemHost().run(argv, 60), PLACE):
        assert fsfreeze() == ["sync", "--freeze"]
    assert fsfreeze()[2:] == ["--unfreeze"]
    with pytest.raises(TransientError), freeze.frozen(lambda argv: SystemHost().run(argv, 60), PLACE):
        raise TransientError("refused")
    assert fsfreeze()[3:] == ["sync", "--freeze", "--unfreeze"]


def test_it_thaws_in_time_though_the_body_hangs(fsfreeze: Callable[[], list[str]]) -> None:
    with freeze.frozen(lambda argv: SystemHost().run(argv, 60), PLACE, max_seconds=1):
        wait_until(lambda: "--unfreeze" in fsfreeze())


def test_it_thaws_though_the_agent_is_killed(fsfreeze: Callable[[], list[str]]) -> None:
    code = (
        "import os, pathlib, signal\n"
        "from userdata.agent.machine import freeze, host\n"
        "run = lambda argv: host.SystemHost().run(argv, 60)\n"
        "with freeze.frozen(run, pathlib.Path('/dltraining'), max_seconds=1000):\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, timeout=TIMEOUT_SECONDS)
    assert done.returncode == -signal.SIGKILL
    wait_until(lambda: "--unfreeze" in fsfreeze())


def test_the_root_file_system_is_never_frozen(fsfreeze: Callable[[], list[str]], tmp_path: Path) -> None:
    with pytest.raises(AgentError, match="is not a mount point"), SystemHost().frozen(tmp_path):
        pass
    assert fsfreeze() == []


def test_what_kills_the_whole_unit_leaves_nothing_frozen_and_a_normal_stop_complains_of_nothing(
    tmp_path: Path, fsfreeze: Callable[[], list[str]]
) -> None:
    [line] = unit_files.settings("gpu-spot-run")["ExecStopPost"]
    assert line.startswith("-")  # most often it is not frozen, and the command fails
    with (tmp_path / "bin/fsfreeze").open("a") as program:
        program.write("\necho 'fsfreeze: /dltraining: unfreeze failed: Invalid argument' >&2; exit 1\n")
    done = subprocess.run(shlex.split(line[1:]), capture_output=True, timeout=TIMEOUT_SECONDS)
    assert (done.returncode, done.stdout, done.stderr) == (1, b"", b"")
    assert fsfreeze() == ["--unfreeze"]


def _can_mount() -> bool:
    return os.geteuid() == 0 and all(map(shutil.which, ("mkfs.xfs", "mount", "fsfreeze")))


@pytest.mark.skipif(not _can_mount(), reason="freezing a real file system needs root, xfsprogs and mount")
def test_a_real_file_system_stands_still_and_goes_on(tmp_path: Path) -> None:
    image, place = tmp_path / "image", tmp_path / "place"
    place.mkdir()
    with image.open("wb") as file:
        file.truncate(320 * 2**20)
    host = SystemHost()
    host.run(["mkfs.xfs", "-q", str(image)], 60)
    try:
        host.run(["mount", "-o", "loop", str(image), str(place)], 60)
    except AgentError as error:
        pytest.skip(f"no loop devices here: {error}")
    try:
        with host.frozen(place):
            writer = subprocess.Popen(["sh", "-c", f"echo 1 > {place}/file"])
            with pytest.raises(subprocess.TimeoutExpired):
                writer.wait(0.5)
        assert writer.wait(TIMEOUT_SECONDS) == 0
        assert (place / "file").read_text() == "1\n"
    finally:
        host.unmount(place)
