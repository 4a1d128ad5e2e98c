"""Versions of running node agents: named by ``gpu-spot status``."""

from __future__ import annotations

import pytest

from contracts.agent import version
from contracts.registry.item import Worker, heartbeat
from gpu_spot.status.reader import _other_agents
from lambdas.aws.registry import RegisteredWorkers
from tests.core.build import NOW


@pytest.mark.parametrize(
    ("agent", "stack", "is_refused"),
    [
        ("0.1.0", "0.2.0", False),
        ("0.1.9", "0.3.0", True),
        ("0.3.0", "0.1.0", False),
        ("0.9.0", "1.0.0", True),
        ("1.0.0", "0.9.0", False),
        ("", "9.0.0", False),
        ("0.1.0; all is well", "9.0.0", False),
    ],
)
def test_one_minor_version_behind_is_the_most(agent: str, stack: str, is_refused: bool) -> None:
    assert version.is_too_old(agent, stack) is is_refused


def test_an_agent_writes_its_version_at_each_heartbeat() -> None:
    values = heartbeat("i-1", 1.0, "ready", None)["ExpressionAttributeValues"]
    assert values[":agent"] == {"S": version.VERSION}


def test_status_names_other_versions_of_workers_that_report() -> None:
    def worker(number: int, agent: str, age: float = 1.0) -> Worker:
        return Worker("web#x", f"i-{number}", 0, NOW - 600, NOW - age, agent_version=agent)

    listed = ("9.0.0", "9.0.0", version.VERSION, "", "\x1b[2J")
    workers = [*(worker(number, agent) for number, agent in enumerate(listed)), worker(9, "8.0.0", 3000.0)]
    registered = RegisteredWorkers({one.instance: [one] for one in workers}, 0, frozenset())
    assert [*_other_agents({"aws": registered}, NOW)] == [
        f"2 workers with agent 9.0.0, not {version.VERSION} as here: replace their hosts"
    ]
