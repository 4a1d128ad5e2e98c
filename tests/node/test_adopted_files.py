"""Before a job starts, the checkpoints of its volume belong to its user, whoever wrote them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.node.clocks import FakeClock
from tests.node.jobs import REGION, node
from tests.node.metadata import MetadataServer
from tests.node.units import DiskHost
from userdata.agent import tasks
from userdata.agent.work.training import checkout as checkouts


class StopError(Exception):
    """Ends the preparation where the checkout begins."""


class CommandHost(DiskHost):
    """Commands are only noted."""

    def __init__(self, ec2: Any) -> None:
        super().__init__(ec2)
        self.ran: list[list[str]] = []

    def run(self, argv: Any, stdin: str = "", environment: Any = None) -> str:
        self.ran.append(list(argv))
        return "990\n"


def test_all_checkpoints_of_the_volume_are_given_to_the_jobs_user(
    aws: Any,
    metadata_server: MetadataServer,
    clock: FakeClock,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def stop(*_: Any) -> None:
        raise StopError

    host = CommandHost(aws)
    instance = node(aws, metadata_server, clock, tmp_path, f"{REGION}a", host)
    assert tasks.volume(instance, "up") == 0
    monkeypatch.setattr(checkouts, "checkout", stop)
    monkeypatch.setattr(instance, "make_user", lambda user: None)
    with pytest.raises(StopError):
        tasks.run(instance)
    commands = [argv for argv in host.ran if argv[-1].startswith("/dltraining/checkpoints")]
    assert commands == [
        ["install", "--directory", "--owner=trainer", "/dltraining/checkpoints/resnet"],
        ["chown", "--recursive", "--no-dereference", "trainer", "/dltraining/checkpoints"],
    ]
