"""Make what runs follow from the list of tenants; when the instance is taken, give every tenant its time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from userdata.agent.machine import log
from userdata.agent.machine.background import Aside, Beside
from userdata.agent.machine.clock import Clock
from userdata.agent.machine.errors import AgentError
from userdata.agent.machine.host import Host
from userdata.agent.tenants.host import container, docker
from userdata.agent.tenants.host.container import HostPlace
from userdata.agent.tenants.host.meter import Meter
from userdata.agent.tenants.host.shares import Shares
from userdata.agent.tenants.host.steps import Found, TenantStep, WantedTenant, steps
from userdata.agent.tenants.host.tenancy import Tenancies
from userdata.agent.tenants.host.volumes import Volumes
from userdata.agent.tenants.model import HostShape, Slice, Tenant
from userdata.agent.tenants.plan import plan
from userdata.agent.work import notice, process
from userdata.agent.work.heartbeat import Heart
from userdata.agent.work.notice import Notice

TICK: Final = 1.0
_LOOK_EVERY: Final = 2.0
_FIRST_BACKOFF: Final = 2.0
_LONGEST_BACKOFF: Final = 300.0
_ENOUGH_FAILURES: Final = 3
"""After which a tenant that cannot be started keeps the host from counting as ready no longer."""


@dataclass(frozen=True)
class Means:
    """What a landlord asks and acts by.

    ``fetch`` returns the list of tenants if it is another one, ``before`` the one that an earlier process of
    this boot went by. ``devices`` returns the CDI names of a slice's GPUs, without their kind.
    """

    host: Host
    clock: Clock
    aside: Aside
    heart: Heart
    homes: Volumes
    meter: Meter
    shares: Shares
    fetch: Callable[[], tuple[Tenant, ...] | None]
    before: Callable[[], tuple[Tenant, ...] | None]
    shape: Callable[[], HostShape]
    pull: Callable[[str], None]
    devices: Callable[[Slice], Sequence[str]]
    list_every: float
    """Seconds between two looks at the list."""


@dataclass
class _Tenancy:
    """What is remembered of a tenant."""

    work: Beside[bool] | None = None
    """What is being done for it; one thing at a time."""
    data_gib: int = 0
    """The size that its volume was last brought to by us."""
    failures: int = 0
    again_at: float = 0.0
    is_starting: bool = False
    up: str = ""
    """The container that was last started or seen to run, and since when; empty once its end is known."""
    since: float = 0.0
    served: bool = False
    restarts: int = 0
    gone: bool = False


class Landlord:
    """Looks every second for a notice, and every few at the list and the containers.

    Told to stop without a notice it leaves containers running: they are Docker's, and a new process takes
    them over as they are. What fails for one tenant is tried again after growing pauses; others do not
    notice.
    """

    def __init__(self, means: Means, place: HostPlace) -> None:
        self._means = means
        self._place = place
        self._tenants: tuple[Tenant, ...] | None = means.before()
        self._list = Beside(lambda: (means.fetch(),), means.aside)
        self._keep = Beside(lambda: (means.homes.keep(),), means.aside)
        self._tenancies = {name: _Tenancy() for name in means.homes.held()}
        self._wanted: dict[str, WantedTenant] = {}
        self._argv: dict[str, list[str]] = {}
        self._is_planned = False
        self._list_due = self._look_due = 0.0
        self._stopping = self._ready = False
        self._doom: Notice | None = None
        self._said: dict[str, str] = {}
        self._work = Tenancies(
            means.host, place, means.homes, means.pull, self._users, lambda: self._doom is not None
        )

    def stop(self) -> None:
        """End at the next tick; safe in a signal handler."""
        self._stopping = True

    def run(self) -> None:
        """Tick until told to stop, or until the instance is taken and every tenant has ended."""
        while self.tick():
            self._means.clock.sleep(TICK)

    def tick(self) -> bool:
        """Do what is due; tell whether to go on. What fails is logged, and tried again."""
        self._hear()
        for name in list(self._tenancies):
            self._settle(name)
        if self._doom and (self._stopping or self._means.clock.wall() >= self._doom.drain_at):
            return self._leave(self._doom)
        if self._stopping:
            return False
        self._read_list()
        now = self._means.clock.monotonic()
        if now >= self._look_due:
            self._look_due = now + _LOOK_EVERY
            self._look()
        self._means.heart.beat([0], waiting=not self._ready)
        return True

    def _hear(self) -> None:
        found = notice.read(self._place.run)
        if found is None or found == self._doom:
            return
        self._doom = found
        for name in self._wanted:
            notice.write(self._place.told(name), found)
        log.warning("tenants told of the notice", tenants=len(self._wanted))

    def _read_list(self) -> None:
        if self._means.clock.monotonic() < self._list_due:
            return
        try:
            answer = self._list.poll()
        except AgentError as error:
            self._list_due = self._means.clock.monotonic() + self._means.list_every
            self._complain("the list of tenants", error)
            return
        if answer is None:
            return  # still being asked
        self._list_due = self._means.clock.monotonic() + self._means.list_every
        self._said.pop("the list of tenants", None)
        if answer[0] is not None and answer[0] != self._tenants:
            self._tenants, self._is_planned = answer[0], False
            log.info("another list of tenants", tenants=[one.name for one in answer[0]])

    def _look(self) -> None:
        try:
            found = docker.found(self._means.host)
            if not self._is_planned and self._tenants is not None:
                self._plan(self._tenants, found)
        except AgentError as error:
            self._complain("a look", error)
            return
        self._said.pop("a look", None)
        self._notice_deaths(found)
        if self._doom is None and self._is_planned:
            for step in steps(self._wanted, found, self._tenancies, self._resting()):
                self._do(step, found)
            self._keep_homes(found)
        restarts = {name: one.restarts for name, one in self._tenancies.items()}
        if self._means.meter.tick(self._means.clock.monotonic(), self._wanted, found, restarts):
            for one in self._tenancies.values():
                one.restarts = 0

    def _plan(self, tenants: tuple[Tenant, ...], found: dict[str, Found]) -> None:
        """Plan anew; a list that does not fit leaves all as it is. Raises `PlanRefused`."""
        shape, held = self._means.shape(), {name: one.part for name, one in found.items() if one.part}
        slices = plan(shape, tenants, held).slices
        wanted, argvs = {}, {}
        for tenant in tenants:
            part = slices[tenant.name]
            shares = self._means.shares.of(part.weight)
            argv = container.run_command(tenant, part, self._means.devices(part), shares, self._place)
            argvs[tenant.name] = argv
            wanted[tenant.name] = WantedTenant(tenant, part, container.spec_of(argv), shares)
        self._wanted, self._argv, self._is_planned = wanted, argvs, True
        for name in wanted:
            self._tenancies.setdefault(name, _Tenancy())

    def _notice_deaths(self, found: dict[str, Found]) -> None:
        now = self._means.clock.monotonic()
        for name, wanted in self._wanted.items():
            one, here = self._tenancies[name], found.get(name)
            if here is not None and here.is_running:
                if here.id != one.up:
                    one.up, one.since = here.id, now
                    if self._means.shares.learn(here.pid, here.shares):
                        self._is_planned = False
                one.served |= here.spec == wanted.spec
            elif one.up and one.work is None:
                if now - one.since >= _LONGEST_BACKOFF:
                    one.failures = 0
                one.up, one.restarts = "", one.restarts + 1
                log.error("a tenant's container has ended", tenant=name, again_in=self._put_off(one))
        mine = [self._tenancies[name] for name in self._wanted]
        self._ready |= bool(mine) and all(one.served or one.failures >= _ENOUGH_FAILURES for one in mine)

    def _do(self, step: TenantStep, found: dict[str, Found]) -> None:
        name = step.tenant
        if step.kind == "update":
            wanted = self._wanted[name]
            try:
                self._means.host.run(container.update_command(name, wanted.part, wanted.shares))
            except AgentError as error:
                self._complain(f"CPUs of {name}", error)
            return
        one = self._tenancies.setdefault(name, _Tenancy())
        if step.kind == "end":
            self._begin(name, partial(self._work.move_out, name))
            return
        wanted, argv = self._wanted[name], self._argv[name]
        one.data_gib, one.is_starting, one.up = wanted.tenant.data_gib, True, ""
        self._begin(name, partial(self._work.move_in, wanted, argv, found.get(name)))

    def _keep_homes(self, found: dict[str, Found]) -> None:
        """Keep the volumes of those who run, as large as they are to be; whose is lost leaves."""
        for name, wanted in self._wanted.items():
            one, size = self._tenancies[name], wanted.tenant.data_gib
            if name in found and name not in self._resting() and one.data_gib != size:
                one.data_gib = size
                self._begin(name, partial(self._work.grow, wanted))
        answer = self._keep.poll()
        for name in answer[0] if answer else ():
            if name in self._tenancies and self._tenancies[name].work is None:
                self._begin(name, partial(self._work.move_out, name))

    def _begin(self, name: str, act: Callable[[], None]) -> None:
        def work() -> bool:
            try:
                act()
            except OSError as error:
                raise AgentError(f"{error.filename}: {error.strerror}") from None
            return True

        self._tenancies[name].work = Beside(work, self._means.aside)
        self._settle(name)

    def _settle(self, name: str) -> None:
        """Take what came of the work for a tenant, if it is done."""
        one = self._tenancies[name]
        try:
            if one.work is None or one.work.poll() is None:
                return
        except AgentError as error:
            one.work, one.data_gib, one.is_starting = None, 0, False
            log.error("tenant not looked after", tenant=name, error=str(error), again_in=self._put_off(one))
            return
        one.work = None
        if one.is_starting:  # it may end before it is seen to run
            one.is_starting, one.up, one.since = False, "started", self._means.clock.monotonic()
        if name not in self._wanted:
            del self._tenancies[name]

    def _leave(self, doom: Notice) -> bool:
        """Let all tenants end at once, each in the time there is, and give their volumes back."""
        left = max(int(process.seconds_to_save(doom, self._means.clock.wall())), 1)
        for name, one in list(self._tenancies.items()):
            if one.work is None and not one.gone:
                one.gone = True
                self._begin(name, partial(self._work.move_out, name, left))
        is_over = all(one.gone and one.work is None for one in self._tenancies.values())
        if is_over:
            self._means.heart.leave(0)
            return False
        self._means.heart.beat([0], draining=True)
        return True

    def _resting(self) -> set[str]:
        now = self._means.clock.monotonic()
        return {n for n, one in self._tenancies.items() if one.work is not None or now < one.again_at}

    def _put_off(self, one: _Tenancy) -> float:
        one.failures += 1
        pause: float = min(_FIRST_BACKOFF * 2 ** (one.failures - 1), _LONGEST_BACKOFF)
        one.again_at = self._means.clock.monotonic() + pause
        return pause

    def _users(self) -> list[int]:
        return [one.tenant.uid for one in self._wanted.values()]

    def _complain(self, what: str, error: AgentError) -> None:
        """Say what is wrong once, until it is something else."""
        if self._said.get(what) != str(error):
            log.error(f"{what}: what runs is left as it is", error=str(error))
        self._said[what] = str(error)
