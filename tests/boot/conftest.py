"""The cloud of a test run, and the machines of each test."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.boot import cloud as clouds
from tests.boot import network
from tests.boot import rig as rigs
from tests.boot.cloud import Cloud
from tests.boot.hosts import Hosts, made, running
from tests.boot.rig import Rig

PHASES: Final = "phases"
OUT: Final = Path(__file__).parents[2] / "out" / "boot.json"


@pytest.fixture(scope="session")
def place() -> Iterator[Path]:
    """A folder of this run; skips, or fails where the tests are required."""
    if reason := rigs.lacking():
        required = os.environ.get(rigs.REQUIRED_VARIABLE) == "required"
        (pytest.fail if required else pytest.skip)(f"no machine can be booted here: {reason}")
    rigs.sweep(Path(tempfile.gettempdir()))
    folder = Path(tempfile.mkdtemp(prefix=f"{rigs.PREFIX}{os.getpid()}-"))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def hosts(place: Path) -> Hosts:
    return made(place / "hosts")


@pytest.fixture(scope="session")
def own(place: Path, hosts: Hosts) -> Path:
    folder = rigs.stand_ins(place / "own")
    hosts.trusted(folder)
    return folder


@pytest.fixture(scope="session")
def cloud(place: Path, hosts: Hosts) -> Iterator[Cloud]:
    (place / "disks").mkdir()
    revisions = {f"training[{number}].revision": hosts.revision for number in range(6)}
    images = dict.fromkeys(
        ("services[1].image", "training[3].image", "sharedHosts[0].tenants[0].image"), hosts.image
    )
    with clouds.running(place / "disks", {**images, **revisions}) as cloud, running(hosts, cloud.network):
        yield cloud


@pytest.fixture
def rig(cloud: Cloud, own: Path, place: Path, request: pytest.FixtureRequest) -> Iterator[Rig]:
    rig = Rig(cloud, own, place)
    try:
        yield rig
    finally:
        request.node.user_properties.append((PHASES, json.dumps(rig.phases)))
        rig.close()
    assert not network.FAILURES


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Add the end of each machine's journal to the report of a failed test, while the machines run."""
    report = yield
    rig = getattr(item, "funcargs", {}).get("rig")
    if report.when == "call" and report.failed and rig is not None:
        report.sections += [(f"journal of {one.name}", one.journal()) for one in rig.machines]
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the seconds of each phase, and MB, and write them to ``out/boot.json``."""
    phases: dict[str, dict[str, float]] = {}
    for reports in terminalreporter.stats.values():
        for report in reports:
            if getattr(report, "when", "") == "teardown":
                for name, value in report.user_properties:
                    if name == PHASES:
                        phases[report.nodeid.rpartition("::")[2]] = json.loads(value)
    if phases:
        OUT.parent.mkdir(exist_ok=True)
        OUT.write_text(json.dumps(phases, indent=1) + "\n")
        for test, seconds in phases.items():
            listed = ", ".join(f"{name} {value:g}" for name, value in seconds.items())
            terminalreporter.write_line(f"{test}: {listed}")
