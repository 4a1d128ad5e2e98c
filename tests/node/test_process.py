"""One run of a command, with real processes: which get SIGTERM, are awaited or killed, and when."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.node.configs import FakeClock
from tests.waiting import TIMEOUT_SECONDS, run_process
from userdata.agent.machine.errors import AgentError
from userdata.agent.machine.host import SystemHost
from userdata.agent.work import process
from userdata.agent.work.notice import Notice
from userdata.agent.work.process import JobProcess

SAVES: Final = """
import os, signal, sys, time
def save(*_):
    open(name + ".told", "a").write("x")
    time.sleep(0.2)
    open(name + ".saved", "w").close()
    sys.exit(0)
name, *user = sys.argv[1:]
[os.setuid(int(one)) for one in user]
signal.signal(signal.SIGTERM, save)
open(name + ".up", "w").close()
while True:
    time.sleep(0.05)
"""
LOADERS: Final = """
import os, signal, subprocess, sys, time
loaders = [subprocess.Popen([sys.executable, "-S", "saves.py", f"loader{n}"]) for n in range(2)]
def save(*_):
    time.sleep(0.3)
    if not any(os.path.exists(f"loader{n}.told") for n in range(2)):
        open("main.saved", "w").close()
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
open("main.up", "w").close()
while True:
    time.sleep(0.05)
"""
LAUNCHER: Final = """
import subprocess, sys
rank = [sys.executable, "-S", "saves.py"]
ranks = [subprocess.Popen([*rank, f"rank{n}"], start_new_session=n > 0) for n in range(2)]
codes = [rank.wait() for rank in ranks]
open("after", "w").write(str(codes))
"""
DEAF: Final = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
[os.setuid(int(one)) for one in sys.argv[2:]]
open(sys.argv[1], "w").close()
time.sleep(600)
"""


class Start:
    """A command in ``place``, looked after in simulated time while its processes take real time."""

    def __init__(self, place: Path, argv: list[str], user: int | None = None) -> None:
        self.place, self.clock = place, FakeClock()
        (place / "saves.py").write_text(SAVES)
        (place / "loaders.py").write_text(LOADERS)
        (place / "launcher.py").write_text(LAUNCHER)
        (place / "deaf.py").write_text(DEAF)
        self.popen = process.spawn(argv, "", None, place)
        self.job = JobProcess(self.popen, SystemHost(), self.clock, user)

    def has(self, *names: str) -> bool:
        return all((self.place / name).exists() for name in names)

    def until(self, true: Callable[[], bool], step: float = 0.0) -> None:
        """Poll until it is so; each poll takes ``step`` simulated ones."""
        end = time.monotonic() + TIMEOUT_SECONDS
        while not true():
            assert time.monotonic() < end, sorted(path.name for path in self.place.iterdir())
            self.job.poll()
            self.clock.advance(step)
            time.sleep(0.02)

    def end(self, step: float = 0.0) -> int:
        self.until(lambda: self.job.poll() is not None, step)
        code = self.job.poll()
        assert code is not None
        return code

    def left(self) -> list[int]:
        running = SystemHost().processes()
        return [one.pid for one in running if self.popen.pid in (one.pid, one.group, one.session)]

    def signals_of(self, name: str) -> str:
        return (self.place / f"{name}.told").read_text()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Start]]:
    made: list[Start] = []

    def begin(*argv: str, user: int | None = None) -> Start:
        made.append(Start(tmp_path, list(argv), user))
        return made[-1]

    yield begin
    for one in made:
        one.job._host.signal_group(one.job.pid, signal.SIGKILL)
        one.popen.kill()
        one.popen.wait()


SAVE: Final = f"{sys.executable} -S saves.py main"


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(["bash", "-c", f"echo begins; {SAVE}; touch never"], id="a script, its work in front"),
        pytest.param(["sh", "-c", f"{SAVE} && touch never"], id="sh -c 'a && b'"),
        pytest.param(["bash", "-c", f"true; exec {SAVE}"], id="exec"),
        pytest.param(["bash", "-c", f"{SAVE} & wait"], id="in the background, waited for"),
        pytest.param(["bash", "-c", f"trap '' TERM; {SAVE}"], id="a script that ignores SIGTERM"),
        pytest.param(["bash", "-c", f"{SAVE} | cat"], id="a pipeline"),
    ],
)
def test_a_wrapped_workload_gets_one_sigterm_and_is_awaited(
    command: list[str], start: Callable[..., Start]
) -> None:
    one = start(*command)
    one.until(lambda: one.has("main.up"))
    one.job.stop(100)
    one.job.stop(100)  # the watcher's, then systemd's at the shutdown
    one.end()
    assert one.has("main.saved")
    assert one.signals_of("main") == "x"
    assert not one.has("never")
    assert one.left() == []


def test_data_loaders_live_until_the_state_is_saved(start: Callable[..., Start]) -> None:
    """Whoever signals all of the group loses the save of a PyTorch job whose loader has workers."""
    one = start("bash", "-c", f"{sys.executable} -S loaders.py; touch never")
    one.until(lambda: one.has("main.up", "loader0.up", "loader1.up"))
    one.job.stop(100)
    one.end(step=0.1)
    assert one.has("main.saved")
    assert (one.signals_of("loader0"), one.signals_of("loader1")) == ("x", "x")  # then, not before
    assert not one.has("never")
    assert one.left() == []


def test_a_process_that_waits_for_a_saving_one_is_not_signalled(start: Callable[..., Start]) -> None:
    """Such as the parent in torch.multiprocessing.spawn: its ranks end with it."""
    one = start(sys.executable, "-S", "launcher.py")
    one.until(lambda: one.has("rank0.up", "rank1.up"))
    one.job.stop(100)
    assert one.end() == 0
    assert (one.place / "after").read_text() == "[0, 0]"
    assert (one.signals_of("rank0"), one.signals_of("rank1")) == ("x", "x")


def test_a_process_without_a_handler_ends_with_its_descendants(start: Callable[..., Start]) -> None:
    one = start(
        sys.executable,
        "-S",
        "-c",
        "import subprocess; subprocess.run(['sh', '-c', 'touch up; sleep 600; :'])",
    )
    one.until(lambda: one.has("up"))
    one.job.stop(100)
    assert one.end() == -signal.SIGTERM
    assert one.left() == []


def test_a_process_started_by_a_trap_is_not_signalled(start: Callable[..., Start]) -> None:
    saves = "import time; time.sleep(0.3); open('saved', 'w')"
    trap = f'save() {{ {sys.executable} -S -c "{saves}"; exit 0; }}; trap save TERM'
    one = start("bash", "-c", f"{trap}; {SAVE}; touch never")
    one.until(lambda: one.has("main.up"))
    one.job.stop(100)
    assert one.end(step=0.1) == 0
    assert one.has("main.saved", "saved")
    assert not one.has("never")


@pytest.mark.parametrize("shell", ["bash", "sh"])
def test_the_rest_of_a_pipeline_writes_what_the_save_says(start: Callable[..., Start], shell: str) -> None:
    run = start(shell, "-c", f"sleep 0.1; {sys.executable} -S says.py main 2>&1 | tee log")
    says = SAVES.replace("sys.exit(0)", "print('saved', flush=True); sys.exit(0)")
    (run.place / "says.py").write_text(says)
    run.until(lambda: run.has("main.up"))
    run.job.stop(90.0)
    run.end()
    assert (run.place / "log").read_text() == "saved\n"
    assert run.signals_of("main") == "x"
    assert not run.left()


def test_what_ignores_the_signal_is_killed_when_its_time_is_up_and_not_before(
    start: Callable[..., Start],
) -> None:
    one = start("bash", "-c", f"{sys.executable} -S deaf.py a.up & {sys.executable} -S deaf.py b.up; wait")
    one.until(lambda: one.has("a.up", "b.up"))
    one.job.stop(100)
    one.until(lambda: one.popen.poll() is not None)  # bash itself has ended
    one.clock.advance(99)
    for _ in range(10):
        assert one.job.poll() is None
        time.sleep(0.02)
    assert len(one.left()) == 2
    one.clock.advance(1)
    one.end()
    assert one.left() == []


def test_a_command_that_ignores_the_signal_is_killed_itself(start: Callable[..., Start]) -> None:
    one = start(sys.executable, "-S", "deaf.py", "a.up")
    one.until(lambda: one.has("a.up"))
    one.job.stop(60)
    one.job.stop(10)  # only an earlier end counts
    one.job.stop(600)
    one.clock.advance(9.9)
    assert one.job.poll() is None
    assert len(one.left()) == 1
    one.clock.advance(0.2)
    assert one.end() == -signal.SIGKILL


def test_what_a_crash_leaves_behind_is_gone_before_the_next_start(start: Callable[..., Start]) -> None:
    one = start(
        "bash", "-c", f"{SAVE} & {sys.executable} -S deaf.py a.up & while [ ! -e go ]; do :; done; exit 3"
    )
    one.until(lambda: one.has("main.up", "a.up"))
    assert one.job.poll() is None
    (one.place / "go").touch()
    assert one.end(step=0.5) == 3
    assert one.has("main.saved")
    assert one.left() == []


@pytest.mark.skipif(os.getuid() != 0, reason="only root may start processes of another user")
def test_what_hides_in_a_session_of_its_own_is_found_by_its_user(
    start: Callable[..., Start], tmp_path: Path
) -> None:
    """Also processes of a launcher (torchrun's ranks): signalled by it, once, not by the agent."""
    unused_uid = 1_000_000 + os.getpid()  # the test must find no process of anybody else
    tmp_path.chmod(0o777)  # the folders above are root's: those processes stay in this one
    script = (
        "import os, subprocess, sys, signal, time\n"
        f"rank = [sys.executable, '-S', 'saves.py', 'rank', '{unused_uid}']\n"
        f"deaf = [sys.executable, '-S', 'deaf.py', 'deaf.up', '{unused_uid}']\n"
        "subprocess.Popen(deaf, start_new_session=True)\n"
        "rank = subprocess.Popen(rank, start_new_session=True)\n"
        f"os.setuid({unused_uid})\n"
        "signal.signal(15, lambda *_: (time.sleep(0.3), rank.terminate(), rank.wait(), sys.exit(0)))\n"
        "open('main.up', 'w').close(); time.sleep(600)\n"
    )
    one = start(sys.executable, "-S", "-c", script, user=unused_uid)
    one.until(lambda: one.has("main.up", "rank.up", "deaf.up"))
    one.job.stop(100)
    one.until(lambda: one.popen.poll() is not None)
    assert one.signals_of("rank") == "x"
    assert [p.user for p in SystemHost().processes() if p.user == unused_uid] == [unused_uid]
    assert one.end(step=0.5) == 0
    assert [p for p in SystemHost().processes() if p.user == unused_uid] == []
    assert one.clock.monotonic() < 1000 + 60  # what it left behind does not take all that is left to save


def test_after_its_end_no_process_is_signalled(
    start: Callable[..., Start], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = start("true")
    assert one.end() == 0
    monkeypatch.setattr(os, "killpg", lambda *_: pytest.fail("its id may be another's by now"))
    one.job.stop(10)


def test_a_command_that_is_not_there_says_so_and_a_folder_too(
    start: Callable[..., Start], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert start("no-such-program").end() == 127
    assert "no-such-program: not found" in capfd.readouterr().err
    with pytest.raises(AgentError, match=r"^true: cannot be started: .*no/such/place"):
        process.spawn(["true"], "", None, tmp_path / "no/such/place")
    with pytest.raises(AgentError, match=r"^user 'no-such-user' does not exist; name "):
        process.spawn(["true"], "no-such-user")


@pytest.mark.skipif(os.getuid() != 0, reason="only root may start processes of another user")
def test_the_workload_does_not_inherit_the_oom_score(tmp_path: Path) -> None:
    # The other way round: to lower it takes a right that this machine may not give.
    score = (
        "from userdata.agent.work import process; import pathlib\n"
        "pathlib.Path('/proc/self/oom_score_adj').write_text('300')\n"
        "shell = ['sh', '-c', 'cat /proc/self/oom_score_adj; readlink /proc/self/fd/0']\n"
        "process.spawn(shell, 'nobody').wait()"
    )
    done = run_process([sys.executable, "-c", score], check=True)
    assert done.stdout.split() == ["0", "/dev/null"]


def test_how_long_there_is_to_save() -> None:
    def notice(deadline: float) -> Notice:
        return Notice("spot", "terminate", "t", deadline, deadline, 0.0)

    clock = FakeClock(wall=1000.0)
    assert process.seconds_to_save(None, clock) == process.STOP_SECONDS
    assert process.seconds_to_save(notice(1120.0), clock) == 110
    assert process.seconds_to_save(notice(1010.0), clock) == 9
    assert process.seconds_to_save(notice(990.0), clock) == 0
