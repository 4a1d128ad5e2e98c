"""Every command reports a missing or garbled stack file in one line."""

from __future__ import annotations

import argparse
import shlex
import shutil
from pathlib import Path
from typing import Final

import pytest

from gpu_spot.cli import main, parser
from tests.infra.declared import ROOT

LINES: Final = {
    "demo": "demo",
    "deploy": "deploy --local",
    "drill": "drill --group x",
    "release-budget": "release-budget --group x --reason y",
    "jobs": "jobs list",
    "pin-images": "pin-images",
    "preflight": "preflight",
    "status": "status",
    "tensorboard": "tensorboard --stop",
    "tenants": "tenants bill --month 2026-11",
}


@pytest.mark.parametrize("command", LINES)
def test_a_missing_stack_is_reported_with_the_existing_ones(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    assert main([*shlex.split(LINES[command]), "--stack", "nope"]) in (1, 2)
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith("gpu-spot: stack 'nope': no file Pulumi.nope.yaml; stacks here: dev, eks, ")
    assert output.err.count("\n") == 1


@pytest.mark.parametrize("content", ["config: [", "- 1", "config: 3", "config: {}", "\x80"])
@pytest.mark.parametrize("command", LINES)
def test_a_garbled_stack_file_is_reported_in_one_line(
    command: str,
    content: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    shutil.copy(ROOT / "Pulumi.yaml", tmp_path)
    file = tmp_path / "Pulumi.mine.yaml"
    file.write_bytes(content.encode("latin-1"))
    monkeypatch.chdir(tmp_path)
    assert main([*shlex.split(LINES[command]), "--stack", "mine"]) in (1, 2)
    output = capsys.readouterr()
    assert output.out == ""
    assert "Pulumi.mine.yaml" in output.err
    assert output.err.count("\n") == 1
    assert file.read_bytes() == content.encode("latin-1")


def test_every_command_with_a_stack_is_tried() -> None:
    [commands] = [one for one in parser()._actions if isinstance(one, argparse._SubParsersAction)]
    taking = {
        name
        for name, each in commands.choices.items()
        if any("--stack" in action.option_strings for action in each._actions)
    }
    assert taking == LINES.keys()
