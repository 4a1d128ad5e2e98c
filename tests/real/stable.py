"""A crowd's workers in containers below the agent's own supervisor."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from packages import run_recorder
from packages.broker_plays.workers import FUNCTION, NOTICE_SECONDS, Worker
from packages.environments import ROOT
from tests.real import containers, service_host
from tests.real.service_host import kill_all
from userdata.agent.work.service.slots import ready_file


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
                cwd=ROOT,
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
        newest = sorted(self.folder.glob("instance-*/said"), key=lambda one: one.stat().st_mtime)[-3:]
        return "\n".join(one.read_text(errors="replace")[-1000:] for one in newest)


def code() -> list[tuple[Path, str]]:
    """Return what the workers' image holds beside Python: the client library, ours, and the function."""
    import pika

    return [
        (Path(pika.__file__).parent, "pika"),
        (ROOT / "packages/spot-work/src/spot_work", "spot_work"),
        (ROOT / "gpu_spot/__init__.py", "gpu_spot/__init__.py"),
        (ROOT / "packages/run_recorder.py", "packages/run_recorder.py"),
        (ROOT / "packages/broker_plays/functions.py", "packages/broker_plays/functions.py"),
    ]
