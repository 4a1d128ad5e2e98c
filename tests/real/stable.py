"""Where a crowd's workers run: processes, or containers below the agent's own supervisor."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Protocol

from packages import run_recorder
from tests.real import containers, service_host
from tests.real.service_host import kill_all
from userdata.agent.work.service.workers import ready_file

HERE: Final = Path(__file__).resolve().parents[2]
NOTICE_SECONDS: Final = 120.0
FUNCTION: Final = "tests.real.functions:double"


class Worker(Protocol):
    """One worker of a crowd."""

    ready: Path
    """There once it is ready."""
    record: Path

    def kill(self) -> None:
        """Take it away without a notice."""
        ...

    def drain(self) -> None:
        """Tell it to drain."""
        ...

    def wait(self) -> bool:
        """Wait until it has ended; tell whether it ended well, within a notice."""
        ...


class Stable(Protocol):
    """Starts workers: ``command`` is what Python is told, ``told`` are variables that lead to the broker."""

    def start(self, number: int, command: list[str], url: str) -> Worker:
        """Start one on the broker at ``url``; ``number`` is its own."""
        ...

    def output(self) -> str:
        """Return the end of what the workers said."""
        ...


@dataclass(frozen=True)
class _Process:
    process: subprocess.Popen[bytes]
    ready: Path
    record: Path

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def drain(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def wait(self) -> bool:
        try:
            return self.process.wait(NOTICE_SECONDS) == 0
        except subprocess.TimeoutExpired:
            self.kill()
            return False


@dataclass(frozen=True)
class Processes:
    """Each worker is a process; ``folder`` holds what they say and write down."""

    folder: Path
    function: str = FUNCTION

    def start(self, number: int, command: list[str], url: str) -> Worker:
        """See ``Stable``."""
        ready, record = self.folder / f"ready-{number}", self.folder / "runs"
        paths = os.pathsep.join([str(HERE), str(HERE / "packages" / "spot-work" / "src")])
        environment = {**os.environ, "PYTHONPATH": paths, "SPOT_WORK_URL": url}
        environment |= {
            run_recorder.FUNCTION: self.function,
            run_recorder.RECORD: str(record),
            "GPU_SPOT_READY": str(ready),
        }
        argv = [sys.executable, *command]
        with (self.folder / "workers").open("ab") as log:
            process = subprocess.Popen(argv, cwd=HERE, env=environment, stdout=log, stderr=log)
        return _Process(process, ready, record)

    def output(self) -> str:
        """See ``Stable``."""
        return (self.folder / "workers").read_text(errors="replace")[-3000:]


@dataclass(frozen=True)
class _Container:
    supervisor: subprocess.Popen[str]
    name: str
    said: Path
    ready: Path
    record: Path

    def kill(self) -> None:
        """Take the supervisor and the container: podman's containers are not below it."""
        kill_all(self.supervisor.pid)
        subprocess.run(["docker", "rm", "--force", "--time", "0", self.name], check=True, capture_output=True)
        self._close()

    def drain(self) -> None:
        assert self.supervisor.stdin is not None
        notice = {"kind": "lifecycle", "seconds": NOTICE_SECONDS, "drain": NOTICE_SECONDS}
        self.supervisor.stdin.write(f"{json.dumps(notice)}\n")
        self.supervisor.stdin.flush()

    def wait(self) -> bool:
        try:
            self.supervisor.wait(NOTICE_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            return False
        self._close()
        lines = [json.loads(line) for line in self.said.read_text().splitlines() if line.startswith("{")]
        return [line["code"] for line in lines if line["event"] == "worker ended"] == [0]

    def _close(self) -> None:
        self.supervisor.wait()
        with contextlib.suppress(BrokenPipeError):
            assert self.supervisor.stdin is not None
            self.supervisor.stdin.close()


@dataclass(frozen=True)
class Containers:
    """Each worker is a container with a GPU's device file, run by the agent as on an instance of its own."""

    folder: Path

    def start(self, number: int, command: list[str], url: str) -> Worker:
        """See ``Stable``."""
        directory = self.folder / f"instance-{number}"
        directory.mkdir()
        [slot] = service_host.worker_slots(1, number)
        ready = ready_file(slot, directory)
        record = ready.parent / "runs"  # where alone a container may write
        host = service_host.ServiceHostConfig(
            command=[str(containers.INTERPRETER), *command],
            environment={
                "PYTHONPATH": "/app",
                run_recorder.FUNCTION: FUNCTION,
                run_recorder.RECORD: str(record),
            },
            secrets={"SPOT_WORK_URL": url},
            slots=1,
            directory=str(directory),
            image=containers.PYTHON,
            first=number,
        )
        said = directory / "said"
        with said.open("w") as log:
            supervisor = subprocess.Popen(
                [sys.executable, "-m", service_host.__name__],
                cwd=HERE,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        assert supervisor.stdin is not None
        supervisor.stdin.write(f"{json.dumps(asdict(host))}\n")
        supervisor.stdin.flush()
        return _Container(supervisor, f"gpu-spot-{number}", said, ready, record)

    def output(self) -> str:
        """See ``Stable``."""
        newest = sorted(self.folder.glob("instance-*/said"), key=lambda one: one.stat().st_mtime)[-3:]
        return "\n".join(one.read_text(errors="replace")[-1000:] for one in newest)


def code() -> list[tuple[Path, str]]:
    """Return what the workers' image holds beside Python: the client library, ours, and the function."""
    import pika

    return [
        (Path(pika.__file__).parent, "pika"),
        (HERE / "packages/spot-work/src/spot_work", "spot_work"),
        (HERE / "gpu_spot/__init__.py", "gpu_spot/__init__.py"),
        (HERE / "packages/run_recorder.py", "packages/run_recorder.py"),
        (HERE / "tests/real/functions.py", "tests/real/functions.py"),
    ]
