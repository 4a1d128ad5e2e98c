"""TensorBoard as its instance installs and starts it: from the lock, over the folders of several jobs."""

from __future__ import annotations

import json
import os
import re
import shlex
import socket
import subprocess
import sys
import time
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from userdata.tensorboard import LOCK, LOGS, PORT, render

WRITE = """
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter
for job in ("resnet-0p1", "resnet-0p01"):
    writer = EventFileWriter(f"logs/{job}/.logs")
    value = Summary.Value(tag="loss", simple_value=0.5)
    writer.add_event(Event(step=1, summary=Summary(value=[value])))
    writer.close()
"""


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def test_the_curves_of_each_job_are_shown(tmp_path: Path) -> None:
    if sys.version_info[:2] != (3, 11):
        pytest.skip("the lock is for Python 3.11, which the instance has")
    document = json.loads(render("fs-1", "fsap-1").partition("\n")[2])
    [install] = [line for line in document["runcmd"] if " pip install " in line]
    options = re.findall(r"--[a-z-]+(?:=\S+)?", install.partition(" --target ")[0])
    pip = [sys.executable, "-m", "pip", "install", *options, "--target", str(tmp_path / "lib")]
    subprocess.run([*pip, "--requirement", str(LOCK)], check=True)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "lib"), "HOME": str(tmp_path)}
    subprocess.run([sys.executable, "-c", WRITE], check=True, env=environment, cwd=tmp_path)
    [unit] = [
        one["content"] for one in document["write_files"] if one["path"].endswith("tensorboard.service")
    ]
    start = re.search(r"^ExecStart=/usr/bin/python3.11 (.*)$", unit, re.M)
    assert start is not None
    port = free_port()
    words = shlex.split(start[1].replace(LOGS, str(tmp_path / "logs")).replace(str(PORT), str(port)))
    process = subprocess.Popen([sys.executable, *words], env=environment)
    try:
        assert shown(port) == ["resnet-0p01/.logs", "resnet-0p1/.logs"]
    finally:
        process.terminate()
        process.wait()


def shown(port: int) -> list[str]:
    runs: list[str] = []
    end = time.monotonic() + 120
    while len(runs) < 2 and time.monotonic() < end:
        try:
            with urlopen(f"http://127.0.0.1:{port}/data/runs", timeout=10) as answer:
                runs = json.load(answer)
        except (URLError, OSError):
            time.sleep(0.2)
    return sorted(runs)
