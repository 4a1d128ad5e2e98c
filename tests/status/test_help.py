"""The output of `gpu-spot --help`."""

from __future__ import annotations

import importlib
from pathlib import Path

from gpu_spot import cli, commands

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
