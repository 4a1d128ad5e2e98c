"""From any state of a host to any list: containers that start, fail, die and overlap in time, in memory."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any, Final

from tests.tenants.laws import places
from userdata.agent.tenants.host import container
from userdata.agent.tenants.host.steps import (
    DesiredTenant,
    TenantContainer,
    TenantWork,
    is_current,
    reconcile,
)
from userdata.agent.tenants.model import HostShape, PlanRefusedError, Slice, Tenant
from userdata.agent.tenants.plan import plan
from userdata.agent.tenants.throughput import ASSUMED, bounds_of

ChangedList = Callable[[random.Random, HostShape, Sequence[Tenant]], list[Tenant]]
BOUNDS: Final = bounds_of(1, 2, ASSUMED)
_FAILURES: Final = 3
"""Failures after which the supervisor counts a tenant as failing."""


@dataclass
class Job:
    """Work on a tenant in the background: it ends after some rounds, perhaps with an error."""

    kind: str
    rounds: int
    fails: bool
    desired: DesiredTenant | None = None


@dataclass
class Machine:
    """A host's containers, and what its supervisor remembers; ``broken`` tenants fail at every start."""

    host: HostShape
    rng: random.Random
    containers: dict[str, TenantContainer] = field(default_factory=dict)
    jobs: dict[str, Job] = field(default_factory=dict)
    present: set[str] = field(default_factory=set)
    desired: dict[str, DesiredTenant] = field(default_factory=dict)
    broken: set[str] = field(default_factory=set)
    failures: Counter[str] = field(default_factory=Counter)
    paused: dict[str, int] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    number: int = 0

    def adopt(self, tenants: Sequence[Tenant]) -> None:
        """Plan a list as the supervisor does; raise ``PlanRefusedError`` without a change."""
        running = {name: one.part for name, one in self.containers.items() if one.part}
        slices = plan(self.host, tenants, running).slices
        self.desired = {one.name: planned(one, slices[one.name]) for one in tenants}
        self.failures.clear()
        self.paused.clear()
        self.present |= {*self.desired}

    def round(self) -> Mapping[str, str]:
        """Run one pass; return the waits."""
        self.paused = {name: left - 1 for name, left in self.paused.items() if left > 1}
        for name in sorted(self.jobs):
            job = self.jobs[name]
            job.rounds -= 1
            if job.rounds <= 0:
                del self.jobs[name]
                self._end(name, job)
        starting = {name: job.desired for name, job in self.jobs.items() if job.desired}
        failing = {name for name, count in self.failures.items() if count >= _FAILURES}
        work = TenantWork({*self.jobs}, {*self.paused}, failing, starting)
        done = reconcile(self.desired, self.containers, self.present, work, self.host)
        for step in done.steps:
            self._begin(step.kind, step.tenant)
        self._check()
        return done.waits

    def _begin(self, kind: str, name: str) -> None:
        self.counts["steps"] += 1
        if kind == "update":
            part, wanted = self.containers[name].part, self.desired[name]
            self.containers[name] = replace(
                self.containers[name],
                part=part and replace(part, cpus=wanted.part.cpus),
                cpuset=wanted.part.cpuset,
                shares=wanted.shares,
                quota=wanted.quota,
            )
            return
        assert name not in self.jobs, f"two jobs for {name}"
        self.counts["stopped_first"] += kind == "clear"
        fails = self.rng.random() < 0.1 or (kind == "start" and name in self.broken)
        wanted_now = self.desired[name] if kind == "start" else None
        self.jobs[name] = Job(kind, self.rng.randint(1, 3), fails, wanted_now)

    def _end(self, name: str, job: Job) -> None:
        if (job.fails and self.rng.random() < 0.8) or (job.fails and name in self.broken):
            self._failed(name)  # before its old container was removed
            return
        self.containers.pop(name, None)
        if job.fails:
            self._failed(name)
            return
        if job.kind == "end":
            self.present.discard(name)
        elif job.desired is not None:
            self.number += 1
            self.containers[name] = running(job.desired, f"{self.number}")

    def _failed(self, name: str) -> None:
        self.failures[name] += 1
        self.paused[name] = self.rng.randint(1, 3)

    def _check(self) -> None:
        """Count containers that run at once with one port, user, part of a GPU, or too much memory."""
        memory = sum(c.part.memory_bytes for c in self.containers.values() if c.is_running and c.part)
        self.counts["clashes"] += memory > self.host.tenants_memory_gib * 2**30
        for one, other in combinations([c for c in self.containers.values() if c.is_running], 2):
            same = one.uid == other.uid or (one.port is not None and one.port == other.port)
            if one.part and other.part:
                same |= bool(places(self.host, one.part) & places(self.host, other.part))
            self.counts["clashes"] += same

    def disturb(self) -> None:
        """Let containers die, labels become unreadable, and the supervisor start anew amid its work."""
        for name in sorted(self.containers):
            match self.rng.randrange(12):
                case 0:
                    self.containers[name] = replace(self.containers[name], is_running=False, pid=0)
                case 1:
                    self.containers[name] = replace(self.containers[name], part=None)
        if self.rng.random() < 0.3:
            for name in sorted(self.jobs):
                self._end(name, self.jobs.pop(name))
            self.failures.clear()
            self.paused.clear()
        self.broken = {name for name in sorted(self.broken | {*self.desired}) if self.rng.random() < 0.06}

    def is_reached(self) -> bool:
        """Return whether all run as planned but those that fail by themselves."""
        extra = {*self.containers, *self.present} - {*self.desired}
        return not extra and all(
            name in self.broken or (name in self.containers and is_current(self.containers[name], desired))
            for name, desired in self.desired.items()
        )

    def reach(self) -> bool:
        """Run rounds until the list is reached; return False after more than any list may take."""
        for _ in range(25 * (len(self.desired) + len(self.present) + 1)):
            waits = self.round()
            self.counts["rounds"] += 1
            for name in self.desired.keys() - self.containers.keys() - self.jobs.keys():
                known = name in waits or name in self.paused or self.failures[name]
                self.counts["silent"] += not known
            if self.is_reached() and not self.jobs:
                return True
        return False


def planned(tenant: Tenant, part: Slice) -> DesiredTenant:
    """Return a tenant's plan as the supervisor makes it, with the ids of its GPUs as names."""
    position = part.mig and f"{part.mig.profile} at {part.mig.gpu}:{part.mig.start}"
    gpus = (position,) if position else tuple(map(str, part.gpus))
    # All that another container is needed for; the supervisor has `container.spec_of`.
    spec = repr((tenant.uid, tenant.host_port, tenant.container_port, tenant.memory_gib, gpus))
    return DesiredTenant(tenant, part, spec, 2 * part.weight, container.cpu_quota(part), gpus, BOUNDS)


def running(desired: DesiredTenant, id_: str) -> TenantContainer:
    port = desired.tenant.host_port
    return TenantContainer(
        id_,
        desired.tenant.name,
        desired.spec,
        desired.part,
        True,
        desired.shares,
        desired.part.cpuset,
        desired.quota,
        7,
        "now",
        str(desired.tenant.uid),
        None if port is None else str(port),
    )


def exchanged(rng: random.Random, tenants: Sequence[Tenant]) -> list[Tenant]:
    """Return the list with what several tenants have passed around among them."""
    chosen = rng.sample(range(len(tenants)), min(len(tenants), rng.randint(2, 4)))
    fields = rng.choice(
        [("uid",), ("host_port",), ("gpus", "gpu_ids", "mig"), ("uid", "host_port"), ("memory_gib",)]
    )
    result = list(tenants)
    for at, source in zip(chosen, [*chosen[1:], chosen[0]], strict=True):
        values: dict[str, Any] = {name: getattr(tenants[source], name) for name in fields}
        if "host_port" in values:
            values["container_port"] = tenants[source].container_port
        result[at] = replace(result[at], **values)
    return result


def pairs(number: int, hosts: Sequence[HostShape], change: ChangedList, rng: random.Random) -> Counter[str]:
    """Reach ``number`` lists, each from a state between other lists, with dead containers and failures."""
    counts: Counter[str] = Counter()
    while counts["list_pairs"] < number:
        machine, tenants = Machine(rng.choice(hosts), rng), list[Tenant]()
        for _ in range(rng.randint(2, 10)):
            tenants = _adopted(machine, change(rng, machine.host, tenants)) or tenants
        for _ in range(30):
            before = _adopted(machine, _other(machine, tenants, change)) or tenants
            for _ in range(rng.randint(0, 12)):
                machine.round()
            machine.disturb()
            after = _adopted(machine, _other(machine, before, change))
            counts["list_pairs"] += 1
            counts["pairs_refused"] += after is None
            counts["stuck"] += not machine.reach()
            tenants = after or before
        for name in ("clashes", "silent", "stopped_first", "steps"):
            counts[name] += machine.counts[name]
    return counts


def _other(machine: Machine, tenants: list[Tenant], change: ChangedList) -> list[Tenant]:
    if len(tenants) > 1 and machine.rng.random() < 0.6:
        return exchanged(machine.rng, tenants)
    return change(machine.rng, machine.host, tenants)


def _adopted(machine: Machine, tenants: list[Tenant]) -> list[Tenant] | None:
    try:
        machine.adopt(tenants)
    except PlanRefusedError:
        return None
    return tenants
