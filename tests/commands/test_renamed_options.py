"""Deprecated option names: accepted with a warning, hidden from help and completion."""

from __future__ import annotations

import argparse
import re

import pytest

from gpu_spot.cli import main, parser
from gpu_spot.commands.completion import script
from gpu_spot.renamed_options import RENAMED, replace_renamed_options

CASES = [(command, old, new) for command, options in RENAMED.items() for old, new in options.items()]


@pytest.mark.parametrize(("command", "old", "new"), CASES)
def test_a_deprecated_option_is_replaced_with_a_warning(
    command: str, old: str, new: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert replace_renamed_options([command, old, "1", f"{old}=2"]) == [command, new, "1", f"{new}=2"]
    warning = f"gpu-spot: {old} is deprecated, use {new}\n"
    assert capsys.readouterr() == ("", 2 * warning)


@pytest.mark.parametrize(("command", "old", "new"), CASES)
def test_the_current_option_exists_and_the_deprecated_one_is_hidden(command: str, old: str, new: str) -> None:
    [commands] = [action for action in parser()._actions if isinstance(action, argparse._SubParsersAction)]
    options = commands.choices[command]._option_string_actions
    assert new in options
    assert old not in options


def test_current_options_and_other_commands_are_unchanged(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in ([], ["demo", "--notice-share", "0.5"], ["status", "--notice"], ["--notice", "replay"]):
        assert replace_renamed_options(arguments) == arguments
    assert capsys.readouterr() == ("", "")


def test_a_command_accepts_a_deprecated_option(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--compute", "1", "--deadline", "2", "--delay", "nan", "--trace", "trace.json"]
    assert main(["replay-deadline", *arguments]) == 2
    error = capsys.readouterr().err
    assert error.startswith("gpu-spot: --delay is deprecated, use --restart-minutes\n")
    assert "--restart-minutes is nan" in error


def test_completion_offers_no_deprecated_option() -> None:
    offered = set(re.findall(r"--[a-z-]+", script(parser(), "bash")))
    assert "--notice-share" in offered
    assert offered.isdisjoint(old for _, old, _ in CASES)
