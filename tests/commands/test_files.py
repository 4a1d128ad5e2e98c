"""Every option for a file or directory: errors name the option, in one line."""

from __future__ import annotations

import argparse
import re
import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import Final

import pytest

from gpu_spot.cli import main, parser
from tests.infra.declared import ROOT

READ: Final = {
    ("demo", "--trace"): "demo --out {out} --trace {}",
    ("forecast", "--base"): "forecast --head stacks/Pulumi.dev.yaml --base {}",
    ("forecast", "--head"): "forecast --head {}",
    ("forecast", "--trace"): "forecast --head stacks/Pulumi.dev.yaml --trace {}",
    ("forecast", "--spot-prices"): "forecast --head stacks/Pulumi.dev.yaml --spot-prices {}",
    ("review", "--preview"): "review --out {out} --preview {empty} {}",
    ("review", "--events"): "review --out {out} --preview {empty} --events {}",
    ("review", "--forecast"): "review --out {out} --preview {empty} --forecast {}",
    ("review", "--rules"): "review --out {out} --preview {empty} --rules {}",
}
"""A command line for each option from which a file is read; ``{}`` is the invalid path."""
WRITTEN: Final = {
    ("demo", "--out"): "demo --out {}",
    ("new", "directory"): "new {}",
    ("review", "--out"): "review --preview {empty} --out {}",
}
BAD: Final = ("missing", "folder", "bytes", "garbled")
UNWRITABLE: Final = ("folder", "garbled", "garbled/below", "garbled/far/below")
ALLOWED: Final = {("review", option, "garbled") for option in ("--forecast", "--preview", "--rules")}
"""A forecast can be any text; of a preview that is not JSON a comment says so (``tests/review``)."""
WRITABLE: Final = {
    ("demo", "--out", "folder"),
    ("new", "directory", "folder"),
    ("review", "--out", "garbled"),
}


def _cases(
    lines: Mapping[tuple[str, str], str], allowed: Set[tuple[str, str, str]], wrong: Sequence[str]
) -> list[tuple[str, str, str]]:
    return [(*key, problem) for key in lines for problem in wrong if (*key, problem) not in allowed]


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(ROOT)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder.svg").mkdir()
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\x00{")
    (tmp_path / "garbled").write_text('{"steps": [1')
    (tmp_path / "empty.json").write_text("{}")
    return tmp_path


def error_of(line: str, directory: Path, name: str, capsys: pytest.CaptureFixture[str]) -> str:
    paths = {"out": directory / "out", "empty": directory / "empty.json"}
    before = sorted(directory.iterdir())
    words = line.replace("{}", "{named}").format(named=directory / name, **paths)
    assert main(shlex.split(words)) in (1, 2)
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith("gpu-spot")
    assert output.err.count("\n") == 1
    assert "Errno" not in output.err
    assert sorted(directory.iterdir()) == before
    return output.err


@pytest.mark.parametrize(("command", "option", "wrong"), _cases(READ, ALLOWED, BAD))
def test_an_unreadable_file_is_reported_with_its_option(
    command: str, option: str, wrong: str, directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    error = error_of(READ[command, option], directory, wrong, capsys)
    assert (
        f"{option}: {directory / wrong} " in error
        or f"--trace: trace {directory / wrong}" in error.replace("trace folder", "trace")
    )
    assert re.search("; (name|add|it must be) ", error) or "is needed" in error


@pytest.mark.parametrize(("command", "option", "wrong"), _cases(WRITTEN, WRITABLE, UNWRITABLE))
def test_an_unwritable_file_is_reported_before_any_work(
    command: str, option: str, wrong: str, directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    error = error_of(WRITTEN[command, option], directory, wrong, capsys)
    assert f"{option}: {directory / wrong} " in error
    assert "; name a writable " in error


def test_each_option_that_takes_a_path_is_tried() -> None:
    paths = [(command, action) for command, action in _options(parser(), "") if action.type is Path]
    named = {(command, (action.option_strings or [action.dest])[0]) for command, action in paths}
    assert named == READ.keys() | WRITTEN.keys()


def _options(parser: argparse.ArgumentParser, command: str) -> Iterator[tuple[str, argparse.Action]]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, subparser in action.choices.items():
                yield from _options(subparser, f"{command} {name}".strip())
        else:
            yield command, action


LINES: Final = {
    "demo": "demo",
    "deploy": "deploy --local",
    "drill": "drill --group x",
    "jobs adopt-volume": "jobs adopt-volume x vol-0",
    "jobs list": "jobs list",
    **{f"jobs {verb}": f"jobs {verb} x" for verb in ("logs", "resume", "retry", "run", "show", "stop")},
    "pin-images": "pin-images",
    "preflight": "preflight",
    "status": "status",
    "tensorboard": "tensorboard --stop",
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
    (tmp_path / "stacks").mkdir()
    file = tmp_path / "stacks" / "Pulumi.mine.yaml"
    file.write_bytes(content.encode("latin-1"))
    monkeypatch.chdir(tmp_path)
    assert main([*shlex.split(LINES[command]), "--stack", "mine"]) in (1, 2)
    output = capsys.readouterr()
    assert output.out == ""
    assert "Pulumi.mine.yaml" in output.err
    assert output.err.count("\n") == 1
    assert file.read_bytes() == content.encode("latin-1")


def test_every_command_with_a_stack_is_tried() -> None:
    taking = {command for command, action in _options(parser(), "") if "--stack" in action.option_strings}
    # ``jobs`` passes it on; ``new`` names the stack that it writes.
    assert taking == LINES.keys() | {"jobs", "new"}
