"""What all tests share: hypothesis profiles, the folder of real spot traces, programs from the system."""

from __future__ import annotations

import gc
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from hypothesis import HealthCheck, settings

from tests import deprecated, tiers
from tests.apart import SHARED_VARIABLE

TRACES_VARIABLE: Final = "GPU_SPOT_TRACES"
MARKET_PROPERTY: Final = "market"
IN_MEMORY: Final = Path("/dev/shm")
LEAST_FREE: Final = 2**30

# `ci` is what `make test` runs: the same 30 examples every time. `dev` searches anew, `deep` for long.
_common = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("dev", **_common)
settings.register_profile("ci", derandomize=True, print_blob=True, database=None, max_examples=30, **_common)
# What `make check` runs.
settings.register_profile("quick", derandomize=True, database=None, max_examples=20, **_common)
settings.register_profile("deep", max_examples=5_000, **_common)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--quick``."""
    parser.addoption("--quick", action="store_true", help="only files of the tiers pure and adapter")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """With ``--quick`` pass over files that it leaves out: to import them takes longer than many a test."""
    leaves_out = config.getoption("quick") and collection_path.name.startswith("test_")
    return True if leaves_out and not tiers.is_quick(collection_path) else None


def pytest_configure(config: pytest.Config) -> None:
    """Tell all processes what to warn of; refuse a traces folder that is not there.

    Without the folder the run would silently measure the model instead.
    """
    os.environ["PYTHONWARNINGS"] = deprecated.FILTERS
    if not hasattr(config, "workerinput"):  # of pytest-xdist: a worker has the variables from the session
        _write_to_memory()
        shared = tempfile.TemporaryDirectory(prefix="gpu-spot-tests-")
        os.environ[SHARED_VARIABLE] = shared.name
        config.add_cleanup(shared.cleanup)
    given = os.environ.get(TRACES_VARIABLE)
    if given and not Path(given).is_dir():
        raise pytest.UsageError(f"{TRACES_VARIABLE}={given}: not a folder (unset it to use the fitted model)")


def _write_to_memory() -> None:
    """Keep temporary files in memory where there is room: a disk takes milliseconds for each fsync.

    A folder that the caller has named in ``TMPDIR`` is left alone.
    """
    if "TMPDIR" in os.environ or not os.access(IN_MEMORY, os.W_OK):
        return
    mounted = os.statvfs(IN_MEMORY)
    if not mounted.f_flag & os.ST_NOEXEC and mounted.f_bavail * mounted.f_frsize >= LEAST_FREE:
        os.environ["TMPDIR"] = str(IN_MEMORY)
        tempfile.tempdir = None  # to be looked up again


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give each test its tier and, where it replays a market, the mark `traces`; and its file its turn."""
    for item in items:
        for name in tiers.marks(item.path):
            item.add_marker(name)
        if "traces" in getattr(item, "fixturenames", ()):
            item.add_marker("traces")
    items.sort(key=lambda item: tiers.turn(item.path))


def pytest_collection_finish() -> None:
    """Take what the collection has made out of the garbage collector's rounds: it stays to the end."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def traces(request: pytest.FixtureRequest) -> Path | None:
    """The folder of real spot traces, or None: then the test draws its market from the fitted model.

    Which of the two it was is printed at the end of the run.
    """
    given = os.environ.get(TRACES_VARIABLE)
    folder = Path(given).resolve() if given else None
    request.node.user_properties.append((MARKET_PROPERTY, "traces" if folder else "model"))
    return folder


@pytest.fixture
def require_program() -> Callable[..., str]:
    """Find a system program by one of its names; where there is none, skip the test with what to install."""

    def find(*names: str, package: str | None = None) -> str:
        for name in names:
            if path := shutil.which(name):
                return path
        pytest.skip(f"{names[0]} is not installed: sudo apt-get install {package or names[0]}")

    return find


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say which market the tests ran on; under xdist the properties arrive with the workers' reports."""
    used: dict[str, set[str]] = {}
    for reports in terminalreporter.stats.values():
        for report in reports:
            for name, value in getattr(report, "user_properties", ()):
                if name == MARKET_PROPERTY:
                    used.setdefault(str(value), set()).add(report.nodeid)
    if tests := used.get("traces"):
        terminalreporter.write_line(f"market: real traces in {len(tests)} tests")
    if tests := used.get("model"):
        terminalreporter.write_line(
            f"market: the fitted model in {len(tests)} tests ({TRACES_VARIABLE} is not set)", yellow=True
        )
