"""Roll-outs to the workers of a played HTTP service, decided by the health checker's core."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from contracts.group.health_settings import NO_DAILY_REPORT, HealthSettings
from contracts.group.release import WorkerRelease, WorkerReleases
from contracts.group.release_settings import DesiredRelease
from lambdas.core.health import decision as health
from lambdas.core.health.decision import HealthDecision
from lambdas.core.health.memory import HealthMemory
from lambdas.core.health.model import ServiceSnapshot, WorkerHost
from lambdas.core.queues import proxies
from lambdas.core.queues.proxies import ProxyHistory, ProxyReading
from lambdas.core.queues.worker_requests import with_requests
from pulumi_on_moto.errors import LocalCloudError
from tests.real.http_play import load_client, play
from tests.real.http_play.load_client import LoadConfig, Record
from tests.real.http_play.play import HttpScript, HttpWorld

PACE: Final = 30.0
SCRIPT: Final = HttpScript(hosts=2, rate=90.0, tokens=6, token_seconds=0.01, concurrency=8, pace=PACE)
_POLL_SECONDS: Final = 60.0
"""Interval of the health checker, in its time."""
_BOOT_SECONDS: Final = 180.0
_PASSES_BEFORE: Final = 4
"""Runs of the health checker before a roll-out, in which it learns the rates."""
_MAX_MINUTES: Final = 120
_DRAIN_SECONDS: Final = 10.0
"""Notice of a host that a roll-out needs no more, in the machine's time."""
_SURGE: Final = 1
"""Hosts that the group may have beyond its target."""


def releases(script: HttpScript) -> dict[str, WorkerRelease]:
    """Return a good release, and two bad ones, by name."""
    failing = str(Path(__file__).with_name("failing_server.py"))
    return {
        "good": WorkerRelease(command=script.command, environment={"RELEASE": "2"}),
        "failing": WorkerRelease(command=(sys.executable, failing)),
        "never-ready": WorkerRelease(command=script.command, environment={"LOAD_SECONDS": "86400"}),
    }


@dataclass(frozen=True)
class RolloutOutcome:
    minutes: float
    rejection_reason: str
    incidents: tuple[str, ...]
    records: tuple[Record, ...]

    @property
    def failed(self) -> list[Record]:
        return [record for record in self.records if record.error]


class HttpRollouts:
    """Runs the health checker for one service, and does what it decides, as controller and agents do."""

    def __init__(self, world: HttpWorld, folder: Path, script: HttpScript) -> None:
        self._world = world
        self._folder = folder
        self._script = script
        self._target = script.hosts
        self._next_at = world.clock.monotonic()
        self._memory = HealthMemory()
        self._history = ProxyHistory()
        self._leaving: set[str] = set()
        self._releases = WorkerReleases(script.release)
        self._incidents: list[str] = []

    @property
    def stable(self) -> WorkerRelease:
        """The release that has been verified."""
        return self._releases.stable

    def roll_out(self, release: WorkerRelease) -> RolloutOutcome:
        """Roll a release out while callers send, until it is stable, or all workers have left it again."""
        clock = self._world.clock
        with self._load() as records:
            for _ in range(_PASSES_BEFORE):
                self._step(self.stable)
            began = clock.wall()
            while not (self._is_decided(release) and self._all_run(self.stable)):
                self._step(release)
                if clock.wall() - began > _MAX_MINUTES * 60:
                    raise LocalCloudError(
                        f"no end of a roll-out after {_MAX_MINUTES} minutes: {self._memory}"
                    )
            minutes = (clock.wall() - began) / 60
        incidents, self._incidents = tuple(self._incidents), []
        return RolloutOutcome(
            round(minutes, 1), self._memory.rollout.rejection_reason, incidents, tuple(records)
        )

    @contextmanager
    def _load(self) -> Iterator[list[Record]]:
        """Send while the block runs; the list has the requests after it."""
        out = self._folder / "requests"
        addresses = [proxy.address for proxy in self._world.proxies]
        records: list[Record] = []
        with play.load(LoadConfig(addresses, self._script.rate, self._script.tokens, self._script.seed), out):
            yield records
        records += load_client.read(out)

    def _is_decided(self, release: WorkerRelease) -> bool:
        is_stable = self._releases.candidate is None and self.stable == release
        return is_stable or self._memory.rollout.rejected == release.version

    def _all_run(self, release: WorkerRelease) -> bool:
        """Return whether each host's worker is registered with a release."""
        members = [self._world.hosts.workers(name) for name in self._remaining()]
        return all(
            workers and all(worker.report and worker.report.version == release.version for worker in workers)
            for workers in members
        )

    def _step(self, desired: WorkerRelease) -> None:
        """Run the health checker once, when its next minute has come, and do what it decides."""
        clock = self._world.clock
        clock.sleep(self._next_at - clock.monotonic())
        self._next_at = clock.monotonic() + _POLL_SECONDS
        settings = HealthSettings(daily_report_hour=NO_DAILY_REPORT)
        snapshot = self._snapshot(clock.wall())
        decision = health.decide(snapshot, settings, self._memory, DesiredRelease(desired))
        self._incidents += [incident.key for incident in decision.new_incidents]
        self._memory = health.mark_notified(decision.memory)
        self._act(decision)

    def _act(self, decision: HealthDecision) -> None:
        hosts, rollout = self._world.hosts, decision.rollout
        self._releases = rollout.releases or self._releases
        for name in self._remaining():
            hosts.assign(name, self._releases.release_for(name))
        for name in {restart.instance for restart in (*decision.restarts, *rollout.restarts)}:
            hosts.restart(name)
        for name in {request.instance for request in decision.replacement_requests} & {*self._remaining()}:
            hosts.end(name)
        desired = self._target + min(rollout.request.surge, _SURGE)
        remaining = self._remaining()
        for _ in range(desired - len(remaining)):
            hosts.launch(self._releases.release_for(""))
        for name in remaining[desired:]:
            hosts.notice(name, _DRAIN_SECONDS)
            self._leaving.add(name)
        for name in [name for name in self._leaving if hosts.has_drained(name)]:
            hosts.end(name)
            self._leaving.discard(name)

    def _remaining(self) -> list[str]:
        return [name for name in self._world.hosts.names() if name not in self._leaving]

    def _snapshot(self, now: float) -> ServiceSnapshot:
        """Return what the function observes: registered workers, with their requests at the proxies."""
        launched = {host.name: host.launched_at for host in self._world.hosts.listed()}
        workers = {name: self._world.hosts.workers(name) for name in self._remaining()}
        starts = {(w.instance, w.slot): w.since for members in workers.values() for w in members}
        readings = {
            str(proxy.address): ProxyReading(proxy.state(), launched_at=0.0) for proxy in self._world.proxies
        }
        state, self._history = proxies.observe(self._history, readings, starts, now)
        filled = workers if state is None else with_requests(workers, state, self._script.concurrency)
        return ServiceSnapshot(
            now,
            tuple(
                WorkerHost(name, tuple(members), expected_workers=1, launched_at=launched[name], is_spot=True)
                for name, members in filled.items()
            ),
            None if state is None else state.queue,
            _BOOT_SECONDS,
            are_requests_unknown=state is None or state.unreadable > 0,
            target=self._target,
            maximum=self._target + _SURGE,
        )


def run(names: Collection[str], script: HttpScript = SCRIPT) -> dict[str, RolloutOutcome]:
    """Roll the named ones of `releases` out, one after the other, and return what came of each."""
    with play.world(script) as (running, folder):
        rollouts = HttpRollouts(running, folder, script)
        return {name: rollouts.roll_out(releases(script)[name]) for name in names}
