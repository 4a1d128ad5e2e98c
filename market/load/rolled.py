"""A checked fleet whose workers get new releases meanwhile, good ones and bad ones."""

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
ANEW_SECONDS: Final = 150.0
"""From the wish to the start: fetch, end what runs, load."""
_FIRST: Final = WorkerRelease("registry.example/ocr@sha256:first")


@dataclass(frozen=True, slots=True)
class Upgrade:
    """From ``at`` (epoch seconds) on this release is wanted; ``fault`` is what is wrong with it."""

    at: float
    release: WorkerRelease
    fault: ReleaseFault = "well"


@dataclass(slots=True)
class RolloutToll:
    """What roll-outs cost, in instances and minutes.

    ``served`` and ``without`` are sums over the minutes: instances that served, of the target, and those that
    would have without the roll-outs' own takings. ``robbed`` counts the looks at which one that served was
    asked to start anew although fewer than nine tenths of the target were left. ``on_bad`` is the most that
    ran a bad release at once. ``promoted`` and ``taken_back`` are versions.
    """

    served: int = 0
    without: int = 0
    robbed: int = 0
    on_bad: int = 0
    promoted: set[str] = field(default_factory=set)
    taken_back: set[str] = field(default_factory=set)

    @property
    def share(self) -> float:
        """What was served of what would have been."""
        return self.served / self.without if self.without else 1.0


@dataclass(slots=True)
class _Runs:
    """What an instance's workers run since when; since ``asked`` they start anew."""

    release: WorkerRelease
    since: float
    asked: float | None = None
    starts: int = 1


@dataclass(slots=True, kw_only=True)
class RolledFleet(CheckedFleet):
    """See ``CheckedFleet``; the checker rolls out what the last of ``upgrades`` that is due asks for."""

    upgrades: Sequence[Upgrade] = ()
    toll: RolloutToll = field(default_factory=RolloutToll)
    row: WorkerReleases = field(default_factory=lambda: WorkerReleases(_FIRST))
    _runs: dict[str, _Runs] = field(default_factory=dict)

    # A dataclass with slots is made anew, so that `super()` would look for the class that it was.

    def tick(self, now: float) -> None:
        """See ``Fleet``: the agents first, then scaler and checker."""
        self._agents(now)
        CheckedFleet.tick(self, now)
        self._count()

    def works(self, instance: Instance) -> bool:
        """See ``ScaledFleet``; a request that fails has ended, too."""
        return CheckedFleet.works(self, instance) and self._fault(instance.id) in ("well", "fails all")

    def _agents(self, now: float) -> None:
        """Do what agents do: start workers from what the row says, once they were asked and are ready."""
        for instance in list(self._instances.values()):
            runs = self._runs.get(instance.id)
            if runs is None and instance.ready_since is not None:
                runs = self._runs[instance.id] = _Runs(self.row.release_for(instance.id), instance.ready_since)
            if runs is None:
                continue
            if runs.asked is not None and now - runs.asked >= ANEW_SECONDS:
                runs.release, runs.since, runs.asked = self.row.release_for(instance.id), now, None
                runs.starts += 1
                self._done.pop(instance.id, None)
            fault = self._fault(instance.id)
            if fault == "crashes":
                runs.starts += 2
            if fault == "never ready" and runs.asked is None and self.row.release_for(instance.id) != runs.release:
                runs.asked = now  # no wish is heard without a beat: the agent looks itself
            away = runs.asked is not None or fault == "never ready"
            if away != (instance.ready_since is None):
                self._stirred = True
                self._instances[instance.id] = replace(instance, ready_since=None if away else runs.since)
        self._runs = {name: runs for name, runs in self._runs.items() if name in self._instances}

    def _check(self, sight: ServiceSnapshot, settings: HealthSettings) -> HealthDecision:
        """See ``CheckedFleet``: with the release that is wanted, and the steps carried out."""
        due = [upgrade.release for upgrade in self.upgrades if upgrade.at <= sight.now]
        demand = RolloutDemand(self.group.target, self.group.maximum)
        wanted = DesiredRelease(due[-1] if due else _FIRST)
        decision = judge.decide(sight, settings, self.health, wanted, demand)
        step = decision.rollout
        self.row = step.releases or self.row
        self._stirred = self._stirred or step.request != self.rolling
        self.rolling = step.request
        if step.memory.rejected:
            self.toll.taken_back.add(step.memory.rejected)
        if step.memory.stable is not None:
            self.toll.promoted.add(step.memory.stable.version)
        self._ask({restart.instance for restart in step.restarts}, demand, sight.now)
        self._ask({restart.instance for restart in decision.restarts}, None, sight.now)
        return decision

    def _ask(self, names: set[str], demand: RolloutDemand | None, now: float) -> None:
        """Have workers start anew; with a ``demand`` it is a roll-out's own doing."""
        # Who hangs and is not found out yet counts: nobody knows better.
        heard = {instance.id for instance in self._instances.values() if self._is_heard(instance)}
        if demand is not None and len(heard - names) < demand.min_serving_workers and names & heard - set(self._ill):
            self.toll.robbed += 1
        for name in names & set(self._runs):
            runs = self._runs[name]
            # What cannot be fetched is not started: the workers go on.
            if runs.asked is None and self._fault_of(self.row.release_for(name)) != "cannot be pulled":
                runs.asked = now

    def _count(self) -> None:
        """Add this minute to the toll."""
        live = [instance for instance in self._instances.values() if instance.id in self._runs]
        well = [one for one in live if one.id not in self._ill and one.deadline is None]
        served = sum(self._is_heard(one) and self._fault(one.id) == "well" for one in well)
        self.toll.served += min(served, self.group.target)
        self.toll.without += min(len(well), self.group.target)
        self.toll.on_bad = max(self.toll.on_bad, sum(self._fault(one.id) != "well" for one in live))

    def _is_heard(self, one: Instance) -> bool:
        """Say whether a well instance's workers serve with a good release, ill or not."""
        runs = self._runs.get(one.id)
        is_up = one.ready_since is not None and one.deadline is None
        return runs is not None and runs.asked is None and is_up and self._fault(one.id) == "well"

    def _fault(self, instance: str) -> ReleaseFault:
        runs = self._runs.get(instance)
        return "well" if runs is None else self._fault_of(runs.release)

    def _fault_of(self, release: WorkerRelease) -> ReleaseFault:
        faults: Mapping[str, ReleaseFault] = {upgrade.release.version: upgrade.fault for upgrade in self.upgrades}
        return faults.get(release.version, "well")

    def _host(self, one: Instance, now: float) -> WorkerHost:
        host = CheckedFleet._host(self, one, now)
        runs = self._runs.get(one.id)
        if runs is None or not host.workers:
            return host
        fault = self._fault(one.id)
        if fault == "crashes" and runs.starts % 4 < 2:
            return replace(host, workers=())
        return replace(
            host, workers=tuple(replace(w, report=_told(w.report, runs, fault)) for w in host.workers)
        )


def _told(pulse: WorkerReport | None, runs: _Runs, fault: ReleaseFault) -> WorkerReport | None:
    """Return what a worker tells that runs this, of what it told without a release."""
    if pulse is None:
        return None
    failed = pulse.done if fault == "fails all" else 0
    return replace(pulse, version=runs.release.version, failed=failed, starts=runs.starts)
