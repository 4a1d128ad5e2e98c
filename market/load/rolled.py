"""A checked fleet with roll-outs of good and bad releases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from contracts.group.health_settings import HealthSettings
from contracts.group.release import WorkerRelease, WorkerReleases
from contracts.group.release_settings import DesiredRelease
from contracts.registry.worker_report import WorkerReport
from lambdas.core.health import decision as judge
from lambdas.core.health.decision import HealthDecision
from lambdas.core.health.model import ServiceSnapshot, WorkerHost
from lambdas.core.model import Instance
from lambdas.core.rollout.state import RolloutDemand
from market.load.checked import CheckedFleet

ReleaseFault = Literal["well", "crashes", "never ready", "finishes nothing", "fails all", "cannot be pulled"]
FAULTS: Final[tuple[ReleaseFault, ...]] = (
    *("crashes", "never ready", "finishes nothing"),
    *("fails all", "cannot be pulled"),
)
RESTART_SECONDS: Final = 150.0
"""From the restart request to the start: pull, stop, load."""
_FIRST: Final = WorkerRelease("registry.example/ocr@sha256:first")


@dataclass(frozen=True, slots=True)
class Upgrade:
    """A release to roll out from ``at`` (epoch seconds) on; ``fault`` is its defect."""

    at: float
    release: WorkerRelease
    fault: ReleaseFault = "well"


@dataclass(slots=True)
class RolloutCosts:
    """The cost of roll-outs, in instance minutes.

    ``served`` and ``without`` are sums over the minutes, up to the target: instances that served, and those
    that would have served without the roll-outs. ``robbed`` counts the polls that restarted a serving
    instance although fewer than nine tenths of the target remained. ``on_bad`` is the maximum of instances
    with a bad release at once. ``promoted`` and ``taken_back`` are versions.
    """

    served: int = 0
    without: int = 0
    robbed: int = 0
    on_bad: int = 0
    promoted: set[str] = field(default_factory=set)
    taken_back: set[str] = field(default_factory=set)

    @property
    def share(self) -> float:
        """``served`` as a fraction of ``without``."""
        return self.served / self.without if self.without else 1.0


@dataclass(slots=True)
class _Runs:
    """The release of an instance's workers and its start; since ``restart_requested_at`` they restart."""

    release: WorkerRelease
    since: float
    restart_requested_at: float | None = None
    starts: int = 1


@dataclass(slots=True, kw_only=True)
class RolledFleet(CheckedFleet):
    """See ``CheckedFleet``; the checker rolls out the latest of ``upgrades`` that is due."""

    upgrades: Sequence[Upgrade] = ()
    costs: RolloutCosts = field(default_factory=RolloutCosts)
    row: WorkerReleases = field(default_factory=lambda: WorkerReleases(_FIRST))
    _runs: dict[str, _Runs] = field(default_factory=dict)

    # A dataclass with slots is a new class: `super()` without arguments would refer to the original.

    def tick(self, now: float) -> None:
        """See ``Fleet``: the agents first, then scaler and checker."""
        self._agents(now)
        CheckedFleet.tick(self, now)
        self._count()

    def works(self, instance: Instance) -> bool:
        """See ``ScaledFleet``; a failed request counts as served."""
        return CheckedFleet.works(self, instance) and self._fault(instance.id) in ("well", "fails all")

    def _agents(self, now: float) -> None:
        """Simulate the agents: restart workers with the row's release, once requested and due."""
        for instance in list(self._instances.values()):
            runs = self._runs.get(instance.id)
            if runs is None and instance.ready_since is not None:
                runs = self._runs[instance.id] = _Runs(
                    self.row.release_for(instance.id), instance.ready_since
                )
            if runs is None:
                continue
            if runs.restart_requested_at is not None and now - runs.restart_requested_at >= RESTART_SECONDS:
                runs.release, runs.since, runs.restart_requested_at = (
                    self.row.release_for(instance.id),
                    now,
                    None,
                )
                runs.starts += 1
                self._done.pop(instance.id, None)
            fault = self._fault(instance.id)
            if fault == "crashes":
                runs.starts += 2
            if (
                fault == "never ready"
                and runs.restart_requested_at is None
                and self.row.release_for(instance.id) != runs.release
            ):
                runs.restart_requested_at = (
                    now  # a restart request arrives with a heartbeat; without one the agent polls
                )
            away = runs.restart_requested_at is not None or fault == "never ready"
            if away != (instance.ready_since is None):
                self._has_changed = True
                self._instances[instance.id] = replace(instance, ready_since=None if away else runs.since)
        self._runs = {name: runs for name, runs in self._runs.items() if name in self._instances}

    def _check(self, snapshot: ServiceSnapshot, settings: HealthSettings) -> HealthDecision:
        """See ``CheckedFleet``: includes the desired release, and carries out the roll-out's steps."""
        released = [upgrade.release for upgrade in self.upgrades if upgrade.at <= snapshot.now]
        demand = RolloutDemand(self.group.target, self.group.maximum)
        desired = DesiredRelease(released[-1] if released else _FIRST)
        decision = judge.decide(snapshot, settings, self.health, desired, demand)
        step = decision.rollout
        self.row = step.releases or self.row
        self._has_changed = self._has_changed or step.request != self.rolling
        self.rolling = step.request
        if step.memory.rejected:
            self.costs.taken_back.add(step.memory.rejected)
        if step.memory.stable is not None:
            self.costs.promoted.add(step.memory.stable.version)
        self._ask({restart.instance for restart in step.restarts}, demand, snapshot.now)
        self._ask({restart.instance for restart in decision.restarts}, None, snapshot.now)
        return decision

    def _ask(self, names: set[str], demand: RolloutDemand | None, now: float) -> None:
        """Restart workers; ``demand``: for a roll-out."""
        # An instance that hangs undetected counts as serving.
        reporting = {instance.id for instance in self._instances.values() if self._is_reporting(instance)}
        if (
            demand is not None
            and len(reporting - names) < demand.min_serving_workers
            and names & reporting - set(self._xid_of)
        ):
            self.costs.robbed += 1
        for name in names & set(self._runs):
            runs = self._runs[name]
            # A release that cannot be pulled is not started: the workers continue.
            if (
                runs.restart_requested_at is None
                and self._fault_of(self.row.release_for(name)) != "cannot be pulled"
            ):
                runs.restart_requested_at = now

    def _count(self) -> None:
        """Add this minute to the roll-outs' cost."""
        live = [instance for instance in self._instances.values() if instance.id in self._runs]
        well = [
            instance for instance in live if instance.id not in self._xid_of and instance.deadline is None
        ]
        served = sum(self._is_reporting(instance) and self._fault(instance.id) == "well" for instance in well)
        self.costs.served += min(served, self.group.target)
        self.costs.without += min(len(well), self.group.target)
        self.costs.on_bad = max(
            self.costs.on_bad, sum(self._fault(instance.id) != "well" for instance in live)
        )

    def _is_reporting(self, instance: Instance) -> bool:
        """Return whether the workers of a healthy instance serve, whatever their release."""
        runs = self._runs.get(instance.id)
        is_up = instance.ready_since is not None and instance.deadline is None
        return (
            runs is not None
            and runs.restart_requested_at is None
            and is_up
            and self._fault(instance.id) == "well"
        )

    def _fault(self, instance: str) -> ReleaseFault:
        runs = self._runs.get(instance)
        return "well" if runs is None else self._fault_of(runs.release)

    def _fault_of(self, release: WorkerRelease) -> ReleaseFault:
        faults: Mapping[str, ReleaseFault] = {
            upgrade.release.version: upgrade.fault for upgrade in self.upgrades
        }
        return faults.get(release.version, "well")

    def _host(self, instance: Instance, now: float) -> WorkerHost:
        host = CheckedFleet._host(self, instance, now)
        runs = self._runs.get(instance.id)
        if runs is None or not host.workers:
            return host
        fault = self._fault(instance.id)
        if fault == "crashes" and runs.starts % 4 < 2:
            return replace(host, workers=())
        return replace(
            host, workers=tuple(replace(w, report=_report_of(w.report, runs, fault)) for w in host.workers)
        )


def _report_of(report: WorkerReport | None, runs: _Runs, fault: ReleaseFault) -> WorkerReport | None:
    """Return a worker's report, changed by the effect of its release."""
    if report is None:
        return None
    failed = report.done if fault == "fails all" else 0
    return replace(report, version=runs.release.version, failed=failed, starts=runs.starts)
