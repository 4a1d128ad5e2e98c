"""The engine on PATH, and the table of all stacks at the end of a run."""

from __future__ import annotations

import shutil
from typing import Any

import pytest

from tests.engine.workspace import Workspace

STACKS_PROPERTY, YEAR_PROPERTY = "stacks", "years"
_TABLES = {
    STACKS_PROPERTY: (
        *("stack", "resources", "aws", "kubernetes", "preview s", "up s", "rest of up s", "preview again s"),
    ),
    YEAR_PROPERTY: (
        *("stack", "change", "", "result", "verdict", "workers ended", "reaches", "s: preview+up+preview"),
    ),
}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--changes", type=int, default=60, metavar="N", help="every N-th change of a key under the engine"
    )
    parser.addoption(
        "--since",
        type=int,
        default=0,
        metavar="N",
        help="the first `up` makes the N changes before, of a year",
    )


def pytest_configure(config: pytest.Config) -> None:
    if shutil.which("pulumi") is None:
        raise pytest.UsageError(
            "tests/engine needs pulumi on PATH: https://www.pulumi.com/docs/iac/download-install/"
        )


@pytest.fixture
def workspace(request: pytest.FixtureRequest, tmp_path: Any) -> Workspace:
    """Return a workspace of the stack ``dev``, or of the one that the test's parameter ``stack`` names."""
    stack = request.node.callspec.params.get("stack", "dev") if hasattr(request.node, "callspec") else "dev"
    return Workspace(tmp_path, stack)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for title, columns in _TABLES.items():
        rows = [
            value
            for reports in terminalreporter.stats.values()
            for report in reports
            for name, value in getattr(report, "user_properties", ())
            if name == title and report.when == "call"
        ]
        if rows:
            terminalreporter.section(f"{title} under the engine")
            for row in (columns, *rows):
                terminalreporter.write_line("| " + " | ".join(str(cell) for cell in row) + " |")
