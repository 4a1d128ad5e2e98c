"""Shared fixtures: one rehearsal, one browser."""

from __future__ import annotations

import os
import shutil

import pytest

from rehearsal.results.run import Run
from tests.report.browser import Browser
from tests.report.rehearsal import rehearse


@pytest.fixture(scope="session")
def run() -> Run:
    """Two days with interruptions of both kinds, refusals and shortages."""
    made = rehearse(48)
    assert {"notice", "unannounced", "refusal"} <= set(made.ledger.counts)
    assert made.ledger.availability < 1
    return made


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Browser:
    """A real browser; without one the tests that need it fail as root and say what is missing otherwise."""
    names = ("chromium", "chromium-browser", "google-chrome")
    program = next(filter(None, map(shutil.which, names)), None)
    if program is None:
        missing = f"no browser found; install one of {', '.join(names)} (Debian: apt-get install chromium)"
        if os.geteuid() == 0:
            pytest.fail(f"{missing}; `make test` installs it")
        pytest.skip(missing)
    return Browser(program, tmp_path_factory.mktemp("chromium"))
