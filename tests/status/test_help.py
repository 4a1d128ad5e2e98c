"""The output of `gpu-spot --help`."""

from __future__ import annotations

import importlib
import json
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from gpu_spot import cli, commands
from tests.waiting import run_process

HOME = Path(commands.__file__).parent


def modules() -> set[str]:
    """Every module that adds a command, as named in the panels."""
    return {
        ".".join(path.relative_to(HOME).with_suffix("").parts)
        for path in HOME.rglob("*.py")
        if "\ndef add_parser(" in path.read_text("utf-8")
    }


def test_every_command_is_in_one_panel() -> None:
    listed = [module for panel in cli._PANELS.values() for module in panel]
    assert sorted(listed) == sorted(modules())
    assert all(importlib.import_module(f"gpu_spot.commands.{module}") for module in listed)


def test_the_list_has_a_line_for_each_command_and_fits_a_terminal() -> None:
    lines = cli.parser().format_help().splitlines()
    for title, panel in cli._PANELS.items():
        start = lines.index(f"{title}:")
        for offset, module in enumerate(panel, start=1):
            name, _, summary = lines[start + offset].strip().partition("  ")
            assert name == module.rpartition(".")[2].replace("_", "-")
            assert summary.strip()
    assert max(map(len, lines)) <= 120


def test_commands_of_other_packages_are_found_by_their_entry_points() -> None:
    lines = cli.parser().format_help().splitlines()
    start = lines.index(f"{cli._PLUG_IN_PANEL}:")
    assert [line.split()[0] for line in lines[start + 1 : start + 3]] == ["demo", "deploy"]
    program = "import sys; from gpu_spot import cli; cli.parser(); print({'moto'} & set(sys.modules))"
    done = run_process([sys.executable, "-c", program], check=True)
    assert done.stdout == "set()\n"


COMMANDS = sorted(cli._name(module) for panel in cli._PANELS.values() for module in panel)
HEAVY = {"boto3", "infra.schema", "moto", "numpy", "pulumi", "pulumi_aws", "pydantic"}
"""What takes tenths of seconds to import."""
HELP = """
import contextlib, json, sys
from gpu_spot import cli
with contextlib.suppress(SystemExit):
    cli.main([*sys.argv[1:], "--help"])
sys.stderr.write(json.dumps(sorted(sys.modules)))
"""


@pytest.mark.parametrize("command", ["", *sorted(COMMANDS)])
def test_help_imports_nothing_that_only_running_needs(command: str) -> None:
    words = [sys.executable, "-c", HELP, *([command] if command else [])]
    done = run_process(words, check=True)
    assert f"usage: gpu-spot {command}".rstrip() in done.stdout
    assert not HEAVY & set(json.loads(done.stderr))


def test_the_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"gpu-spot {version('gpu-spot')}\n"
