"""Tenants that do not run as listed, in ``gpu-spot status``."""

from __future__ import annotations

from io import StringIO

from rich.console import Console

from contracts.registry.item import Worker
from contracts.registry.tenant_wait import TenantWait
from gpu_spot.status import report
from gpu_spot.status.reader import _tenant_waits
from gpu_spot.status.snapshot import DeclaredEntries, GroupSnapshot, StackSnapshot
from gpu_spot.status.text import view
from lambdas.aws.registry import RegisteredWorkers
from tests.core.build import NOW

WAIT = TenantWait("vision", "waits for port 8001 of 'speech'")


def snapshot(waits: tuple[TenantWait, ...] | None) -> StackSnapshot:
    group = GroupSnapshot("lab", 1, tenant_waits=waits)
    declared = DeclaredEntries({"lab": ("vision", "speech")})
    return StackSnapshot("dev", "us-west-2", NOW, (), (group,), (), (), declared, 0)


def lines(waits: tuple[TenantWait, ...] | None) -> list[str]:
    console = Console(width=200, record=True, file=StringIO())
    console.print(view(snapshot(waits)))
    said = [line.rstrip() for line in console.export_text().splitlines()]
    at = said.index("tenants of lab: vision, speech")
    return [
        line for line in said[at + 1 :] if line.startswith(" ") and ("tenants" in line or "listed" in line)
    ]


def test_a_wait_has_a_line_and_an_unknown_host_says_so() -> None:
    assert lines((WAIT,)) == [" vision does not run as listed: waits for port 8001 of 'speech'"]
    assert lines(()) == []
    assert lines(None) == [" lab: unknown whether its tenants run"]
    [group] = report.to_json(snapshot((WAIT,)))["groups"]
    assert group["tenant_waits"] == [{"tenant": "vision", "reason": "waits for port 8001 of 'speech'"}]
    assert report.to_json(snapshot(None))["groups"][0]["tenant_waits"] is None


def test_the_newest_current_heartbeat_counts() -> None:
    def worker(instance: str, age: float, waits: tuple[TenantWait, ...] | None) -> Worker:
        return Worker("lab#x", instance, 0, NOW - 600, NOW - age, tenant_waits=waits)

    def read(*workers: Worker) -> tuple[TenantWait, ...] | None:
        registered = RegisteredWorkers({w.instance: [w] for w in workers}, 0, frozenset())
        return _tenant_waits({"aws": registered}, NOW)

    assert read(worker("i-1", 20, (WAIT,)), worker("i-2", 10, ())) == ()
    assert read(worker("i-1", 20, (WAIT,)), worker("i-2", 10, None)) == (WAIT,)
    assert read(worker("i-1", 3000, (WAIT,))) is None
    assert read() is None
