"""Every option of every command that takes a file or folder: what is wrong with one is told in one line."""

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

LINE: Final = "replay-deadline --compute 1 --deadline 2 --delay 1 --starts 2"
READ: Final = {
    ("advise", "--head"): "advise --budget 9 --head {}",
    ("advise", "--spot-prices"): "advise --budget 9 --head Pulumi.dev.yaml --spot-prices {}",
    ("demo", "--trace"): "demo --out {out} --trace {}",
    ("demo", "--job"): "demo --out {out} --job {}",
    ("demo", "--python"): "demo --out {out} --job examples/training --python {}",
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
"""A command line for each option from which something is read; ``{}`` is what is wrong."""
WRITTEN: Final = {
    ("demo", "--out"): "demo --out {}",
    ("drill", "--out"): "drill --group inference --rehearse --out {}",
    ("replay", "--json"): "replay --target 1 --trace {good} --plot {out}.svg --json {}",
    ("replay", "--plot"): "replay --target 1 --trace {good} --json {out} --plot {}.svg",
    ("replay-deadline", "--json"): f"{LINE} --trace {{good}} --json {{}}",
    ("review", "--out"): "review --preview {empty} --out {}",
}
BAD: Final = ("missing", "folder", "bytes", "garbled")
UNWRITABLE: Final = ("folder", "garbled", "garbled/below", "garbled/far/below")
ALLOWED: Final = {("review", "--forecast", "garbled")}
"""A forecast is any text."""
WRITABLE: Final = {
    *((command, "--out", "folder") for command in ("demo", "drill")),
    *((*key, "garbled") for key in WRITTEN if key not in (("demo", "--out"), ("drill", "--out"))),
}
ELSEWHERE: Final = {("advise", "--trace")}
"""Refused whatever it names."""


def _cases(
    lines: Mapping[tuple[str, str], str], allowed: Set[tuple[str, str, str]], wrong: Sequence[str]
) -> list[tuple[str, str, str]]:
    return [(*key, one) for key in lines for one in wrong if (*key, one) not in allowed]


@pytest.fixture
def there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(ROOT)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder.svg").mkdir()
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\x00{")
    (tmp_path / "garbled").write_text('{"steps": [1')
    (tmp_path / "empty.json").write_text("{}")
    (tmp_path / "good.json").write_text(json.dumps({"metadata": {"gap_seconds": 600}, "data": [1] * 200}))
    return tmp_path


def said(line: str, there: Path, named: str, capsys: pytest.CaptureFixture[str]) -> str:
    places = {"out": there / "out", "good": there / "good.json", "empty": there / "empty.json"}
    before = sorted(there.iterdir())
    words = line.replace("{}", "{named}").format(named=there / named, **places)
    assert main(shlex.split(words)) in (1, 2)
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith("gpu-spot")
    assert told.err.count("\n") == 1
    assert "Errno" not in told.err
    assert sorted(there.iterdir()) == before
    return told.err


@pytest.mark.parametrize(("command", "option", "wrong"), _cases(READ, ALLOWED, BAD))
def test_what_cannot_be_read_is_told_with_its_option(
    command: str, option: str, wrong: str, there: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = said(READ[command, option], there, wrong, capsys)
    assert f"{option} is {there / wrong}" in told or f"--trace: trace {there / wrong}" in told.replace(
        "trace folder", "trace"
    )
    assert "allowed: " in told or "is needed" in told


@pytest.mark.parametrize(("command", "option", "wrong"), _cases(WRITTEN, WRITABLE, UNWRITABLE))
def test_where_nothing_can_be_written_is_told_before_anything_is_done(
    command: str, option: str, wrong: str, there: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = said(WRITTEN[command, option], there, wrong, capsys)
    assert f"{option} is {there / wrong}" in told
    assert ", allowed: a file that can be" in told or ", allowed: a folder that can be" in told


def test_each_option_that_takes_a_path_is_tried() -> None:
    assert set(_paths(parser(), "")) == READ.keys() | WRITTEN.keys() | ELSEWHERE


def _paths(of: argparse.ArgumentParser, command: str) -> Iterator[tuple[str, str]]:
    for action in of._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, each in action.choices.items():
                yield from _paths(each, name)
        elif action.type is Path:
            yield command, action.option_strings[0]
