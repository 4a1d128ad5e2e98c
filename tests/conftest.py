"""Common to all tests: hypothesis profiles, the directory of Spot traces, system programs."""

from __future__ import annotations

import gc
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

import pytest
from hypothesis import HealthCheck, settings

from tests import deprecated, tiers
from tests.apart import SHARED_VARIABLE

TRACES_VARIABLE: Final = "GPU_SPOT_TRACES"
MARKET_PROPERTY: Final = "market"
IN_MEMORY: Final = Path("/dev/shm")
MIN_FREE_BYTES: Final = 2**30

# `make test` uses `ci`: the same 20 examples every time. `dev` draws new examples, `deep` many.
_common = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("dev", **_common)
settings.register_profile("ci", derandomize=True, print_blob=True, database=None, max_examples=20, **_common)
# Used by `make check`.
settings.register_profile("quick", derandomize=True, database=None, max_examples=5, **_common)
settings.register_profile("deep", max_examples=5_000, **_common)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="only files of the tier pure")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """With ``--quick`` do not import files that it leaves out, which would take longer than their tests."""
    leaves_out = config.getoption("quick") and collection_path.name.startswith("test_")
    return True if leaves_out and not tiers.is_quick(collection_path) else None


def pytest_configure(config: pytest.Config) -> None:
    """Set warning filters for all processes; fail if the directory of traces does not exist.

    Without the directory the run would silently use the model instead.
    """
    os.environ["PYTHONWARNINGS"] = deprecated.FILTERS
    if hasattr(config, "workerinput"):  # of pytest-xdist: a worker has the variables from the session
        gc.disable()  # until the tests are collected: it takes a fifth of that time
    else:
        _write_to_memory()
        shared = tempfile.TemporaryDirectory(prefix="gpu-spot-tests-")
        os.environ[SHARED_VARIABLE] = shared.name
        config.add_cleanup(shared.cleanup)
    traces_dir = os.environ.get(TRACES_VARIABLE)
    if traces_dir and not Path(traces_dir).is_dir():
        raise pytest.UsageError(
            f"{TRACES_VARIABLE}={traces_dir}: not a directory (unset it to use the fitted model)"
        )


def _write_to_memory() -> None:
    """Keep temporary files in memory if there is room: a disk takes milliseconds for each fsync.

    ``TMPDIR`` of the caller takes precedence.
    """
    if "TMPDIR" in os.environ or not os.access(IN_MEMORY, os.W_OK):
        return
    mounted = os.statvfs(IN_MEMORY)
    if not mounted.f_flag & os.ST_NOEXEC and mounted.f_bavail * mounted.f_frsize >= MIN_FREE_BYTES:
        os.environ["TMPDIR"] = str(IN_MEMORY)
        tempfile.tempdir = None  # read again on next use


def pytest_collect_directory(path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Let every second worker collect from the end, so that two of them compile half of the files each."""
    number = os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")
    return FromTheEnd.from_parent(parent, path=path) if int(number) % 2 else None


class FromTheEnd(pytest.Dir):
    """A directory whose last file comes first."""

    def collect(self) -> Iterable[pytest.Item | pytest.Collector]:
        return reversed(list(super().collect()))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark each test with its tier, and with ``traces`` if it replays a market; order the files.

    All workers have the same order.
    """
    for item in items:
        for name in tiers.marks(item.path):
            item.add_marker(name)
        if "traces" in getattr(item, "fixturenames", ()):
            item.add_marker("traces")
    items.sort(key=lambda item: (tiers.run_order(item.path), item.path))


def pytest_collection_finish() -> None:
    """Exclude objects of the collection from garbage collection: they live to the end; look less often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)
    gc.enable()


@pytest.fixture
def traces(request: pytest.FixtureRequest) -> Path | None:
    """Return the directory of Spot traces, or None to draw the market from the fitted model.

    The end of the run reports which was used.
    """
    traces_dir = os.environ.get(TRACES_VARIABLE)
    directory = Path(traces_dir).resolve() if traces_dir else None
    request.node.user_properties.append((MARKET_PROPERTY, "traces" if directory else "model"))
    return directory


@pytest.fixture
def require_program() -> Callable[..., str]:
    """Find a system program by one of its names; without it skip the test and say what to install."""

    def find(*names: str, package: str | None = None) -> str:
        for name in names:
            if path := shutil.which(name):
                return path
        pytest.skip(f"{names[0]} is not installed: sudo apt-get install {package or names[0]}")

    return find


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Report which market the tests used; under xdist the properties are in the workers' reports."""
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
