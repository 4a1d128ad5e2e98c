"""The Python of a job that is really run in the rehearsal: built by uv, once, from the package index."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from contracts.agent.config import Python, Training
from pulumi_on_moto.errors import LocalCloudError
from rehearsal.machines.real.job_environment import built

SMALL = "six==1.17.0 --hash=sha256:4721f391ed90541fddacab5acf947aa0d3dc7d27b2e1e8eda2be8970586c3274\n"


def test_it_is_built_once_and_what_cannot_be_built_is_said(tmp_path: Path) -> None:
    code = tmp_path / "code"
    code.mkdir()
    (code / "requirements.txt").write_text(SMALL)
    training = Training(
        *("j", "t", "https://git.example.org/a", "0" * 40, ("x",), "nobody", "p"),
        python=Python("3.12", "requirements.txt"),
    )
    programs = built(training, code, tmp_path / "cache")
    said = subprocess.check_output(
        [programs / "python3", "-c", "import six; print(six.__version__)"], text=True
    )
    assert said == "1.17.0\n"
    before = (programs / "python3").lstat().st_mtime_ns
    assert built(training, code, tmp_path / "cache") == programs
    assert (programs / "python3").lstat().st_mtime_ns == before
    (code / "requirements.txt").write_text("six==1.17.0\nsix==1.16.0\n")
    with pytest.raises(
        LocalCloudError, match=r"cannot build the job's Python environment: requirements.txt: .*--python"
    ):
        built(training, code, tmp_path / "cache")
