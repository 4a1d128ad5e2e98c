"""Which worker hangs and which is busy, second by second and in real processes."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from spot_work.watchdog.hang import HANG_SECONDS, HangDetector
from spot_work.watchdog.supervisor import Watchdog
from support.waiting import wait_until

RELAY = "spot_work.rabbitmq.relay"
WORKER = """
import ctypes, logging, re, sys
from spot_work.watchdog.supervisor import Watchdog
Watchdog()
print("started", flush=True)
if sys.argv[1] == "hang":
    ctypes.PyDLL(None).pause()  # holds the interpreter lock and waits
re.match("(a|a)+$", "a" * 40 + "b")  # holds it and works, for hours
"""


def seconds_until_hanging(signs: Sequence[tuple[bool, float]]) -> int | None:
    """Return the first second at which a worker with these ticks and CPU seconds hangs."""
    detector, cpu = HangDetector(), 5.0
    for second, (has_ticked, used) in enumerate(signs):
        cpu += used
        if detector.is_hanging(has_ticked=has_ticked, cpu_seconds=cpu):
            return second
    return None


def test_a_worker_without_ticks_and_without_work_hangs() -> None:
    assert seconds_until_hanging([(True, 0.0)] * 5 + [(False, 0.0)] * 30) == 4 + HANG_SECONDS


def test_to_ask_for_the_interpreter_lock_is_no_work() -> None:
    assert seconds_until_hanging([(False, 0.02)] * 30) is not None


@pytest.mark.parametrize("sign", [(True, 0.0), (False, 0.5)])
def test_one_that_ticks_or_works_does_not(sign: tuple[bool, float]) -> None:
    assert seconds_until_hanging([sign] * 600) is None


def test_a_moment_of_work_starts_the_count_again() -> None:
    signs = [(False, 0.0)] * (HANG_SECONDS - 1) + [(False, 0.2)]
    assert seconds_until_hanging(signs * 10) is None


def test_without_the_cpu_time_a_worker_is_busy() -> None:
    detector = HangDetector()
    assert not any(detector.is_hanging(has_ticked=False, cpu_seconds=None) for _ in range(60))


def start(kind: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", WORKER, kind], stdout=subprocess.PIPE, text=True)


@pytest.mark.soak
def test_a_function_that_hangs_in_c_is_killed_within_20_seconds_and_a_busy_one_is_not() -> None:
    with start("hang") as hanging, start("busy") as busy:
        try:
            for worker in (hanging, busy):
                assert worker.stdout is not None
                assert worker.stdout.readline() == "started\n"
            started_at = time.monotonic()
            assert hanging.wait(60) == -signal.SIGKILL
            assert time.monotonic() - started_at < 20
            assert busy.poll() is None
        finally:
            busy.kill()
            hanging.kill()


FORKING = """
import os, time
from spot_work.watchdog.supervisor import Watchdog
watchdog = Watchdog()
watchdog.relay("spot_work.rabbitmq.relay", "amqp://127.0.0.1:1/")
child = os.fork()
if child == 0:
    os.closerange(1, 3)
    time.sleep(600)
print(watchdog._process.pid, child, flush=True)
time.sleep(600)
"""


def test_the_process_ends_with_a_killed_worker_that_has_a_child() -> None:
    with subprocess.Popen([sys.executable, "-c", FORKING], stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdout is not None
        process, child = map(int, worker.stdout.readline().split())
        try:
            worker.kill()
            wait_until(lambda: not is_alive(process))
            assert is_alive(child)
        finally:
            os.kill(child, signal.SIGKILL)


def is_alive(pid: int) -> bool:
    """Return whether a process runs; one that nobody has waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (OSError, IndexError):
        return False


def test_the_process_ends_with_its_worker() -> None:
    watchdog = Watchdog()
    process = watchdog._process
    assert process is not None
    assert watchdog.relay(RELAY, "amqp://127.0.0.1:1/") > 0  # it runs
    os.kill(process.pid, signal.SIGTERM)  # meant for the worker
    watchdog.close()
    assert process.returncode == 0


def test_a_watchdog_that_was_killed_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path, Path("a-path")])  # Python ignores it
    watchdog = Watchdog()
    first = watchdog._process
    assert first is not None
    first.kill()
    wait_until(lambda: first.poll() is not None)
    assert watchdog.relay(RELAY, "amqp://127.0.0.1:1/") > 0
    assert watchdog._process is not first
    watchdog.close()
    with pytest.raises(ConnectionError, match="closed"):
        watchdog.relay(RELAY, "amqp://127.0.0.1:1/")


def test_a_watchdog_that_does_not_answer_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its late answer would lead the next connection to the port of the one before."""
    watchdog = Watchdog()
    assert watchdog.relay(RELAY, "amqp://127.0.0.1:1/") > 0  # it runs
    first, control = watchdog._process, watchdog._control
    assert first is not None
    assert control is not None
    first.send_signal(signal.SIGSTOP)
    control.settimeout(0.1)
    with pytest.raises(TimeoutError):
        watchdog.relay(RELAY, "amqp://127.0.0.1:1/")
    assert watchdog.relay(RELAY, "amqp://127.0.0.1:1/") > 0
    assert watchdog._process is not first
    watchdog.close()


@pytest.mark.soak
def test_a_relayed_connection_has_whole_frames_and_heartbeats_of_a_busy_worker() -> None:
    frame = b"\x01\x00\x00\x00\x00\x00\x02hi\xce"
    watchdog = Watchdog()
    received = bytearray()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def read() -> None:
            broker, _ = listener.accept()
            with broker:
                broker.sendall(b"start")
                while data := broker.recv(100):
                    received.extend(data)

        thread = threading.Thread(target=read)
        thread.start()
        port = watchdog.relay(RELAY, f"amqp://127.0.0.1:{listener.getsockname()[1]}/")
        with socket.create_connection(("127.0.0.1", port)) as worker:
            worker.sendall(b"AMQP\x00\x00\x09\x01" + 3 * frame + frame[:4])
            assert worker.recv(100) == b"start"
            # The relay keeps the half frame back, and sends its own heartbeat before it.
            wait_until(lambda: received.endswith(b"\x08\x00\x00\x00\x00\x00\x00\xce"))
            worker.sendall(frame[4:])
            wait_until(lambda: received.endswith(frame))
        thread.join(60)
    assert received.startswith(b"AMQP\x00\x00\x09\x01" + 3 * frame + b"\x08")
    watchdog.close()
