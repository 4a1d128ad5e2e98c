"""Every option for a file or directory: errors name the option, in one line."""

from __future__ import annotations

import argparse
import json
import shlex
from collections.abc import Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import Final

import pytest

from gpu_spot.cli import main, parser
from tests.infra.declared import ROOT

LINE: Final = "replay-deadline --compute 1 --deadline 2 --restart-minutes 1 --starts 2"
READ: Final = {
    ("advise", "--head"): "advise --budget 9 --head {}",
    ("advise", "--spot-prices"): "advise --budget 9 --head Pulumi.dev.yaml --spot-prices {}",
    ("advise", "--spot-advisor"): "advise --budget 9 --head Pulumi.dev.yaml --spot-advisor {}",
    ("advise", "--trace"): "advise --budget 9 --head Pulumi.dev.yaml --trace {}",
    ("demo", "--trace"): "demo --out {out} --trace {}",
    ("demo", "--job"): "demo --out {out} --job {}",
    ("demo", "--python"): "demo --stack research --out {out} --job examples/training --python {}",
    ("forecast", "--base"): "forecast --head Pulumi.dev.yaml --base {}",
    ("forecast", "--head"): "forecast --head {}",
    ("forecast", "--trace"): "forecast --head Pulumi.dev.yaml --trace {}",
    ("forecast", "--spot-prices"): "forecast --head Pulumi.dev.yaml --spot-prices {}",
    ("replay", "--trace"): "replay --target 1 --json {out} --trace {good} {}",
    ("replay-deadline", "--trace"): f"{LINE} --json {{out}} --trace {{good}} {{}}",
    ("review", "--preview"): "review --out {out} --preview {empty} {}",
    ("review", "--events"): "review --out {out} --preview {empty} --events {}",
    ("review", "--forecast"): "review --out {out} --preview {empty} --forecast {}",
}
"""A command line for each option from which a file is read; ``{}`` is the invalid path."""
WRITTEN: Final = {
    ("demo", "--out"): "demo --out {}",
    ("drill", "--out"): "drill --group inference --rehearse --out {}",
    ("replay", "--json"): "replay --target 1 --trace {good} --plot {out}.svg --json {}",
    ("replay", "--plot"): "replay --target 1 --trace {good} --json {out} --plot {}.svg",
    ("replay-deadline", "--json"): f"{LINE} --trace {{good}} --json {{}}",
    ("review", "--out"): "review --preview {empty} --out {}",
    ("study", "--curves"): "jobs study vit --stack dev --curves {}.svg",
}
BAD: Final = ("missing", "folder", "bytes", "garbled")
UNWRITABLE: Final = ("folder", "garbled", "garbled/below", "garbled/far/below")
ALLOWED: Final = {("review", "--forecast", "garbled"), ("review", "--preview", "garbled")}
"""A forecast can be any text; of a preview that is no JSON a comment says so (``tests/review``)."""
WRITABLE: Final = {
    *((command, "--out", "folder") for command in ("demo", "drill")),
    *((*key, "garbled") for key in WRITTEN if key not in (("demo", "--out"), ("drill", "--out"))),
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
    (tmp_path / "good.json").write_text(json.dumps({"metadata": {"gap_seconds": 600}, "data": [1] * 200}))
    return tmp_path


def error_of(line: str, directory: Path, name: str, capsys: pytest.CaptureFixture[str]) -> str:
    paths = {"out": directory / "out", "good": directory / "good.json", "empty": directory / "empty.json"}
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
        f"{option} is {directory / wrong}" in error
        or f"--trace: trace {directory / wrong}" in error.replace("trace folder", "trace")
    )
    assert "allowed: " in error or "is needed" in error


@pytest.mark.parametrize(("command", "option", "wrong"), _cases(WRITTEN, WRITABLE, UNWRITABLE))
def test_an_unwritable_file_is_reported_before_any_work(
    command: str, option: str, wrong: str, directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    error = error_of(WRITTEN[command, option], directory, wrong, capsys)
    assert f"{option} is {directory / wrong}" in error
    assert ", allowed: a writable " in error


def test_each_option_that_takes_a_path_is_tried() -> None:
    assert set(_paths(parser(), "")) == READ.keys() | WRITTEN.keys()


def _paths(parser: argparse.ArgumentParser, command: str) -> Iterator[tuple[str, str]]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, subparser in action.choices.items():
                yield from _paths(subparser, name)
        elif action.type is Path:
            yield command, action.option_strings[0]
