"""A job's Python, built by the real uv from the package index, as a user that is not us."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from contracts.agent.config import Python, Training
from userdata.agent.machine.errors import AgentError
from userdata.agent.machine.host import SystemHost
from userdata.agent.work.training.job_python import MARK, JobPython

USER = "nobody"
SMALL = "six==1.17.0 --hash=sha256:4721f391ed90541fddacab5acf947aa0d3dc7d27b2e1e8eda2be8970586c3274\n"
NOWHERE = "http://127.0.0.1:9/simple"


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    assert os.geteuid() == 0, "this test becomes another user: run it as root"
    folder = Path(tempfile.mkdtemp(prefix="gpu-spot-"))  # pytest's own is for one user only
    folder.chmod(0o755)
    for name in ("code", "cache"):
        (folder / name).mkdir()
        shutil.chown(folder / name, USER)
    (folder / "code" / "requirements.txt").write_text(SMALL)
    (folder / "code" / "impossible.txt").write_text("six==1.17.0\nsix==1.16.0\n")
    yield folder
    shutil.rmtree(folder)


def job(place: Path, requirements: str = "requirements.txt", **environment: str) -> JobPython:
    version = ".".join(subprocess.check_output(["python3", "-V"], text=True).split()[1].split(".")[:2])
    training = Training(
        "j", "t", "https://example.com/a", "0" * 40, ("x",), USER, "p", python=Python(version, requirements)
    )
    training = replace(training, environment=environment)
    folders = (place / "code", place / "environments", place / "tools", place / "cache")
    return JobPython(SystemHost(), training, *folders)


def test_it_is_built_from_the_index_and_found_again_without_one(place: Path) -> None:
    first = job(place)
    first.prepare()
    start = first.start(["python", "-c", "import six; print(six.__version__, six.__file__)"], {}, place)
    command = [shutil.which("runuser") or "", "--user", first.user, "--", *start.argv]
    said = subprocess.check_output(command, env=start.environment, text=True, cwd=place).split()
    assert said[0] == "1.17.0"
    home = Path(start.environment["VIRTUAL_ENV"])
    assert said[1].startswith(str(home))
    assert home.owner() == USER
    # Another instance: nothing but the data volume, and no index that answers.
    shutil.rmtree(place / "tools")
    shutil.rmtree(place / "cache" / "uv")
    again = job(place, PIP_INDEX_URL=NOWHERE, UV_OFFLINE="1")
    again.prepare()
    assert again.start(["python"], {}, place).environment["VIRTUAL_ENV"] == str(home)


def test_requirements_that_cannot_be_met_are_named_with_what_uv_says(place: Path) -> None:
    with pytest.raises(AgentError, match=r"impossible\.txt: .*six==1\.1[67]\.0.*unsatisfiable"):
        job(place, "impossible.txt").prepare()


def test_an_environment_with_a_killed_build_is_rebuilt(place: Path) -> None:
    # An index that answers nothing: uv waits for it until it is killed with its user's other processes.
    (place / "code" / "waits.txt").write_text("six==1.16.0\n")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}/simple"
        killer = subprocess.Popen(
            f'until pgrep -u {USER} -f "pip install.*waits.txt" >/dev/null; do sleep 0.1; done;'
            f' pkill -KILL -u {USER} -f "pip install.*waits.txt"',
            shell=True,
        )
        with pytest.raises(AgentError, match=r"waits\.txt: "):
            job(place, "waits.txt", UV_DEFAULT_INDEX=address).prepare()
        killer.wait(60)
    whole = {mark.parent for mark in (place / "environments").glob(f"*/{MARK}")}
    waiting = job(place, "waits.txt")
    waiting.prepare()
    home = Path(waiting.start(["python"], {}, place).environment["VIRTUAL_ENV"])
    assert home not in whole
    python = ["runuser", "--user", USER, "--", str(home / "bin/python"), "-c"]
    assert subprocess.check_output([*python, "import six; print(six.__version__)"], text=True) == "1.16.0\n"
