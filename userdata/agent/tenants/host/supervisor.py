"""The supervisor of a shared host: reconciles containers with the tenant list and drains them on a notice."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar

from contracts.registry.tenant_wait import MAX_REASON_LENGTH, TenantWait
from userdata.agent.machine import log
from userdata.agent.machine.background import (
    MAX_BACKOFF_SECONDS,
    BackgroundPoller,
    Guard,
    Lane,
    SilentError,
    backoff,
)
from userdata.agent.machine.errors import AgentError, ConfigError
from userdata.agent.machine.host import QUICK
from userdata.agent.tenants.host import container, docker, firewall
from userdata.agent.tenants.host.container import TenantPaths
from userdata.agent.tenants.host.limiter import LendingTenant
from userdata.agent.tenants.host.steps import (
    DesiredTenant,
    Reconciliation,
    TenantContainer,
    TenantStep,
    TenantWork,
    is_current,
    reconcile,
)
from userdata.agent.tenants.host.tenancy import TenantLifecycle
from userdata.agent.tenants.host.tenant_state import SupervisorDependencies, TenantState
from userdata.agent.tenants.model import HostShape, Slice, Tenant
from userdata.agent.tenants.plan import plan
from userdata.agent.tenants.throughput import bounds_of
from userdata.agent.work import notice, process
from userdata.agent.work.notice import Notice

_T = TypeVar("_T")

TICK_SECONDS: Final = 1.0
_ASK_SECONDS: Final = 60.0
"""Time limit of a query of Docker, the driver or AWS."""
_WORK_SECONDS: Final = 3600.0
"""Time after which work for a tenant, such as pulling its image, is reported as silent."""
_REMOVAL_INTERVAL_SECONDS: Final = 5.0
"""Between two tries to remove a tenant before the instance terminates."""
_FIREWALL_INTERVAL_SECONDS: Final = 60.0
"""Between two checks that the firewall's rules are there."""
_VERSIONS_INTERVAL_SECONDS: Final = 300.0
_FAILURES_BEFORE_READY: Final = 3
"""Failed starts after which a tenant keeps neither the host from being ready nor another tenant waiting."""


@dataclass(frozen=True)
class _Plan:
    """The plan of a list on this machine."""

    tenants: tuple[Tenant, ...]
    shape: HostShape
    desired: dict[str, DesiredTenant]


class TenantSupervisor:
    """Reconciles containers with the tenant list, and checks for an interruption notice every second.

    If stopped without a notice it leaves the containers running in Docker; the next process adopts them.
    Failures of a tenant are retried with exponential backoff and do not affect other tenants.
    """

    def __init__(self, dependencies: SupervisorDependencies, paths: TenantPaths) -> None:
        self._dependencies = dependencies
        self._paths = paths
        self._tenants: tuple[Tenant, ...] | None = dependencies.cached_tenants()
        self._guard = Guard(dependencies.clock)
        interval = dependencies.list_interval_seconds
        self._list_poller = self._poller("tenant list", self._fetch_list, interval)
        self._lease_poller = self._poller("leases", dependencies.volumes.renew_leases)
        list_containers = partial(docker.list_containers, dependencies.host)
        interval = dependencies.poll_interval_seconds
        self._container_poller = self._poller("containers", list_containers, interval)
        interval = _VERSIONS_INTERVAL_SECONDS
        self._version_poller = self._poller("versions", lambda: tuple(dependencies.outdated()), interval)
        self._firewall_poller = self._poller("firewall", self._restore_rules, _FIREWALL_INTERVAL_SECONDS)
        self._plan_poller: BackgroundPoller[_Plan] | None = None
        self._updates = Lane("updates", dependencies.run_in_background, dependencies.clock, _ASK_SECONDS)
        self._works_done = self._listed_after = 0
        """Works done so far, and before the list of containers that is being read."""
        self._states = {name: TenantState() for name in dependencies.volumes.tenants()}
        self._desired: dict[str, DesiredTenant] = {}
        self._shape = HostShape((), 0)
        self._is_planned = self._has_plan = self._is_recalibrated = False
        self._plan_error = self._list_error = ""
        self._waits: tuple[TenantWait, ...] | None = None
        self._outdated: Sequence[str] | None = None
        """None: not known yet."""
        self._stopping = self._ready = False
        self._termination: Notice | None = None
        self._last_errors: dict[str, str] = {}
        self._lifecycle = TenantLifecycle(
            dependencies.host,
            paths,
            dependencies.volumes,
            dependencies.prepare_image,
            dependencies.secret_variables,
            lambda part: dependencies.gpus.prepare(part, self._shape),
            self._network_rates,
            dependencies.disk_of,
            lambda: self._termination is not None,
        )

    def _poller(
        self, name: str, query: Callable[[], _T], interval: float = 0.0, seconds: float = _ASK_SECONDS
    ) -> BackgroundPoller[_T]:
        run_in_background, clock = self._dependencies.run_in_background, self._dependencies.clock
        return BackgroundPoller(name, query, run_in_background, clock, seconds, interval)

    def stop(self) -> None:
        """Stop at the next tick; safe in a signal handler."""
        self._stopping = True

    def run(self) -> None:
        """Run until stopped, or until all tenants have been removed after a notice."""
        while self.tick():
            self._dependencies.clock.sleep(min(TICK_SECONDS, self._dependencies.poll_interval_seconds))
        self._dependencies.heartbeats.flush()

    def tick(self) -> bool:
        """Run one pass, which waits for nothing; return whether to continue. Failures are retried."""
        self._guard.run("notice", self._read_notice, postpones=False)
        for name in list(self._states):
            self._guard.run(f"tenant {name}", partial(self._finish_work, name), postpones=False)
        if self._termination and (self._stopping or self._termination.is_drain_due(self._dependencies.clock)):
            return self._drain(self._termination)
        if self._stopping:
            return False
        self._guard.run("tenant list", self._read_list)
        self._guard.run("reconciliation", self._reconcile)
        self._send(waiting=not self._ready, tenant_waits=self._waits)
        return True

    def _send(self, **state: Any) -> None:
        self._guard.run("heartbeats", partial(self._dependencies.heartbeats.send, [0], **state))

    def _read_notice(self) -> None:
        received = notice.read(self._paths.run)
        if received is None:
            return
        if received != self._termination:
            self._termination = received
            log.warning("notice for the tenants", tenants=len(self._desired))
        for name in self._desired:
            if self._states[name].notice != received:
                self._guard.run(f"notice {name}", partial(self._pass_notice, name, received), postpones=False)

    def _pass_notice(self, name: str, received: Notice) -> None:
        notice.write(self._paths.notice_directory(name), received)
        self._states[name].notice = received

    def _fetch_list(self) -> tuple[tuple[Tenant, ...] | None]:
        """Fetch the list, in the background, and remember why it cannot be decoded or stored."""
        try:
            tenants = self._dependencies.fetch_tenants()
        except (ConfigError, OSError) as error:
            self._list_error = str(error)
            raise
        self._list_error = ""
        return (tenants,)

    def _read_list(self) -> None:
        result = self._list_poller.take()
        if result is None:
            return  # not read yet
        if result[0] is not None and result[0] != self._tenants:
            self._tenants, self._is_planned = result[0], False
            log.info("tenant list changed", tenants=[tenant.name for tenant in result[0]])

    def _reconcile(self) -> None:
        if not self._container_poller.is_running:
            self._listed_after = self._works_done
        containers = self._container_poller.take()
        if self._container_poller.failures > 1:  # more than a container that was removed meanwhile
            self._record_waits(dict.fromkeys(self._desired, self._container_poller.error))
        if containers is None:
            return  # not listed yet
        if self._listed_after != self._works_done:  # before what a work has changed since
            self._container_poller.due_at = 0.0
            return
        self._try_plan(containers)
        self._track_containers(containers)
        self._check_versions()
        if self._has_plan and containers:
            self._firewall_poller.take()
        if self._termination is None and self._has_plan:
            result = reconcile(self._desired, containers, self._states, self._work(), self._shape)
            is_updating = not self._updates.is_idle
            for step in result.steps:
                if step.kind in ("start", "clear") and self._outdated != ():
                    continue
                if step.kind != "update" or not is_updating:
                    take = partial(self._start_step, step, containers)
                    self._guard.run(f"tenant {step.tenant}", take)
            self._updates.poll()
            self._guard.run("volumes", partial(self._maintain_volumes, containers))
        else:
            result = Reconciliation((), {})
        self._watch_lending(containers)
        self._record_waits(self._reasons(containers, result.waits))
        restarts = {name: state.restarts for name, state in self._states.items()}
        waiting = {wait.tenant for wait in self._waits or ()}
        now = self._dependencies.clock.monotonic()
        read = partial(self._dependencies.meter.tick, now, self._desired, containers, restarts, waiting)
        if self._guard.run("metrics", partial(read, self._shape)):
            for state in self._states.values():
                state.restarts = 0

    def _watch_lending(self, containers: Mapping[str, TenantContainer]) -> None:
        tenants, shared_cpus = {}, set[int]()
        for name, entry in containers.items():
            desired = self._desired.get(name)
            if desired is not None and entry.is_running and desired.tenant.cpu_mode != "pinned":
                can_borrow = desired.tenant.cpu_mode == "shared"
                tenants[name] = LendingTenant(entry.pid, desired.tenant.cpus, can_borrow)
                shared_cpus.update(desired.part.cpus)
        self._dependencies.limiter.watch(tenants, shared_cpus)

    def _check_versions(self) -> None:
        """Find out whether tenants may be started on this host: at first, and while they may not."""
        if self._outdated == () or (outdated := self._version_poller.take()) is None:
            return
        self._outdated = outdated
        if outdated:
            log.error("no tenant is started on this host", outdated=list(self._outdated))

    def _try_plan(self, containers: dict[str, TenantContainer]) -> None:
        """Plan a changed list; if that fails, the plan before it stays in effect."""
        if self._is_planned or self._tenants is None:
            return
        if self._plan_poller is None:
            running = {name: entry.part for name, entry in containers.items() if entry.part}
            self._plan_poller = self._poller("plan", partial(self._compute_plan, self._tenants, running))
        poller = self._plan_poller
        try:
            if (planned := poller.poll()) is not None:
                self._apply(planned)
        except AgentError as error:
            self._plan_error = str(error)
            self._log_once("planning", error)
        if not poller.is_running:
            self._plan_poller = None

    def _compute_plan(self, tenants: tuple[Tenant, ...], running: Mapping[str, Slice]) -> _Plan:
        """Compute the plan, in the background; raises `PlanRefusedError` if the list does not fit."""
        shape = self._dependencies.read_shape()
        slices = plan(shape, tenants, running).slices
        desired = {}
        for tenant in tenants:
            part = slices[tenant.name]
            shares = self._dependencies.weight_curve.shares_for(part.weight)
            gpus = self._dependencies.gpus.names(part)
            spec = container.spec_of(tenant, part, gpus, self._paths)
            quota = container.cpu_quota(part)
            bounds = bounds_of(tenant.cpus, shape.cpus, self._dependencies.bandwidth)
            desired[tenant.name] = DesiredTenant(tenant, part, spec, shares, quota, gpus, bounds)
        self._confine_daemons(shape)
        return _Plan(tenants, shape, desired)

    def _apply(self, planned: _Plan) -> None:
        desired = planned.desired
        for name, tenant in desired.items():
            state = self._states.setdefault(name, TenantState())
            if name in self._desired and self._desired[name].spec != tenant.spec:
                # What failed was another container: the changed one is tried at once.
                state.failures, state.retry_at, state.error = 0, 0.0, ""
        self._desired, self._shape, self._has_plan = desired, planned.shape, True
        self._is_planned = planned.tenants == self._tenants and not self._is_recalibrated
        self._is_recalibrated = False
        self._plan_error = ""
        self._last_errors.pop("planning", None)

    def _track_containers(self, containers: dict[str, TenantContainer]) -> None:
        for name, desired in self._desired.items():
            track = partial(self._track_container, name, desired, containers.get(name))
            self._guard.run(f"tenant {name}", track, postpones=False)
        states = [self._states[name] for name in self._desired]
        self._ready |= bool(states) and all(
            state.has_served or state.failures >= _FAILURES_BEFORE_READY for state in states
        )

    def _track_container(self, name: str, desired: DesiredTenant, container: TenantContainer | None) -> None:
        now = self._dependencies.clock.monotonic()
        state = self._states[name]
        if container is not None and container.is_running:
            if container.id != state.container_id:
                state.container_id, state.started_at = container.id, now
                if self._dependencies.weight_curve.calibrate(container.pid, container.shares):
                    self._is_planned, self._is_recalibrated = False, self._plan_poller is not None
            if is_current(container, desired):
                state.has_served, state.error = True, ""
        elif state.container_id and state.work is None:
            if now - state.started_at >= MAX_BACKOFF_SECONDS:
                state.failures = 0
            state.container_id, state.restarts = "", state.restarts + 1
            state.error = "the container ended"
            log.error("tenant container ended", tenant=name, retry_in_seconds=self._back_off(state))

    def _start_step(self, step: TenantStep, containers: dict[str, TenantContainer]) -> None:
        name = step.tenant
        if step.kind == "update":
            self._updates.submit(partial(self._update, self._desired[name]))
            return
        state = self._states.setdefault(name, TenantState())
        if step.kind == "end":
            self._start_work(name, partial(self._lifecycle.remove, name))
            return
        if step.kind == "clear":
            state.is_clearing = True
            self._start_work(name, partial(self._lifecycle.clear, name))
            return
        desired = self._desired[name]
        state.data_gib, state.is_starting, state.container_id = desired.tenant.data_gib, True, ""
        state.starting = desired
        self._start_work(name, partial(self._lifecycle.start, desired, containers.get(name)))

    def _update(self, desired: DesiredTenant) -> None:
        name = desired.tenant.name
        command = container.update_command(name, desired.part, desired.shares)
        try:
            # First: a failed step is repeated only while the container's CPUs are not as planned.
            firewall.apply_rules(self._dependencies.host, self._network_rates())
            self._dependencies.host.run(command, QUICK)
        except AgentError as error:
            self._log_once(f"updating the CPUs of {name}", error)

    def _restore_rules(self) -> bool:
        return firewall.restore_rules(self._dependencies.host, self._network_rates())

    def _maintain_volumes(self, containers: dict[str, TenantContainer]) -> None:
        """Grow volumes and renew their leases; remove a tenant whose lease is lost."""
        for name, desired in self._desired.items():
            state, size = self._states[name], desired.tenant.data_gib
            is_due = state.growth_error and self._dependencies.clock.monotonic() >= state.grow_at
            is_due = is_due or state.data_gib != size
            if name in containers and name not in self._paused() and is_due:
                state.data_gib = size
                self._start_work(name, partial(self._lifecycle.grow, desired))
        for name in self._lease_poller.poll() or ():
            if name in self._states and self._states[name].work is None:
                self._start_work(name, partial(self._lifecycle.remove, name))

    def _start_work(self, name: str, act: Callable[[], str | None]) -> None:
        def work() -> str:
            try:
                return act() or ""
            except OSError as error:
                raise AgentError(f"{error.filename}: {error.strerror}") from None

        self._states[name].work = self._poller(f"tenant {name}", work, seconds=_WORK_SECONDS)
        self._finish_work(name)

    def _finish_work(self, name: str) -> None:
        """Process the result of a tenant's background work if it is done."""
        state = self._states[name]
        try:
            if state.work is None or (growth_error := state.work.poll()) is None:
                return
        except SilentError as error:
            state.error = str(error)  # it still runs, and another beside it would do harm
            return
        except AgentError as error:
            self._works_done += 1
            state.work, state.data_gib, state.is_starting = None, 0, False
            state.starting, state.error, state.is_clearing = None, str(error), False
            state.growth_error = str(error)
            log.error(
                "tenant work failed", tenant=name, error=str(error), retry_in_seconds=self._back_off(state)
            )
            return
        self._works_done += 1
        now = self._dependencies.clock.monotonic()
        state.work, state.starting = None, None
        state.growth_error, state.grow_at = growth_error, now + MAX_BACKOFF_SECONDS
        if state.is_clearing:  # its end is not a crash
            state.is_clearing, state.container_id = False, ""
        if state.is_starting:  # it may end before it is observed running
            state.is_starting, state.container_id, state.started_at = False, "started", now
        if name not in self._desired and name not in self._dependencies.volumes.tenants():
            del self._states[name]

    def _drain(self, termination: Notice) -> bool:
        """Remove all tenants in parallel and release their volumes; repeat what fails while time remains."""
        clock = self._dependencies.clock
        now, seconds = clock.monotonic(), int(process.seconds_to_save(termination, clock))
        for name, state in list(self._states.items()):
            is_due = state.remove_at is None or (seconds > 0 and now >= state.remove_at)
            if state.work is None and not state.is_removed and is_due:
                state.remove_at = now + _REMOVAL_INTERVAL_SECONDS
                self._start_work(name, partial(self._remove, name, state, max(seconds, 1)))
        if all(s.work is None and (s.is_removed or seconds <= 0) for s in self._states.values()):
            self._dependencies.heartbeats.deregister(0)
            return False
        self._send(draining=True)
        return True

    def _remove(self, name: str, state: TenantState, seconds: int) -> None:
        self._lifecycle.remove(name, seconds)
        state.is_removed = True

    def _work(self) -> TenantWork:
        in_progress = {name for name, state in self._states.items() if state.work is not None}
        return TenantWork(
            in_progress=in_progress,
            paused=self._paused() - in_progress,
            failing={n for n, state in self._states.items() if state.failures >= _FAILURES_BEFORE_READY},
            starting={name: state.starting for name, state in self._states.items() if state.starting},
        )

    def _reasons(self, containers: Mapping[str, TenantContainer], waits: Mapping[str, str]) -> dict[str, str]:
        """Return why tenants do not run as planned, by name."""
        reasons = {}
        for name, desired in self._desired.items():
            container, state = containers.get(name), self._states[name]
            if container is not None and is_current(container, desired):
                if self._firewall_poller.error:
                    reasons[name] = self._firewall_poller.error
                elif state.growth_error:
                    reasons[name] = f"its volume has not its size yet: {state.growth_error}"
                continue
            failure = f"failed {state.failures} times: {state.error}" if state.error else ""
            versions = "; ".join(self._outdated or ())
            reasons[name] = versions or waits.get(name) or failure or "is being started"
        planned = [desired.tenant for desired in self._desired.values()]
        for tenant in self._tenants or () if self._plan_error else ():
            if tenant not in planned:
                reasons[tenant.name] = f"the list is refused: {self._plan_error}"
        for tenant in self._tenants or () if self._list_error else ():  # what it lists is unknown
            reasons.setdefault(tenant.name, f"the list is refused: {self._list_error}")
        return reasons

    def _record_waits(self, reasons: Mapping[str, str]) -> None:
        """Record the waits for heartbeat and metrics; log those that are new."""
        if self._tenants is None:
            return  # unknown until a list is read
        texts = {name: " ".join(reason.split())[:MAX_REASON_LENGTH] for name, reason in reasons.items()}
        waits = tuple(TenantWait(name, reason) for name, reason in sorted(texts.items()))
        for wait in waits:
            if wait not in (self._waits or ()):
                log.info("tenant waits", tenant=wait.tenant, reason=wait.reason)
        self._waits = waits

    def _paused(self) -> set[str]:
        now = self._dependencies.clock.monotonic()
        return {n for n, state in self._states.items() if state.work is not None or now < state.retry_at}

    def _back_off(self, state: TenantState) -> float:
        state.failures += 1
        pause = backoff(state.failures)
        state.retry_at = self._dependencies.clock.monotonic() + pause
        return pause

    def _confine_daemons(self, shape: HostShape) -> None:
        """Bind Docker's daemons to the system's CPUs, once; if that fails tenants still start."""
        if self._has_plan:
            return
        cpus = tuple(cpu for core in shape.reserved_cores for cpu in core)
        try:
            docker.confine(self._dependencies.host, Slice(cpus, 0, 0).cpuset)
        except AgentError as error:
            log.error("Docker's daemons are not bound to the system's CPUs", error=str(error))

    def _network_rates(self) -> dict[int, int]:
        return {desired.tenant.uid: desired.bounds.network for desired in self._desired.values()}

    def _log_once(self, operation: str, error: AgentError) -> None:
        """Log an error unless it is the same as the last one of its kind."""
        if self._last_errors.get(operation) != str(error):
            log.error(f"{operation} failed; containers unchanged", error=str(error))
        self._last_errors[operation] = str(error)
