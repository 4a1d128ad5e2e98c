"""Make what runs follow from what is declared; when the instance is taken, give every tenant his time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from userdata.agent import files, log, notice
from userdata.agent.clock import Clock
from userdata.agent.errors import AgentError, RefusedError
from userdata.agent.host import Host
from userdata.agent.names import NOTICE_FILE
from userdata.agent.slices import docker
from userdata.agent.slices.model import Machine, Share, Slices, Tenant
from userdata.agent.slices.plan import plan

_LOOK_EVERY: Final = 1.0
_RECONCILE_EVERY: Final = 10.0
_LONGEST_BACKOFF: Final = 300.0
_STOP_SECONDS: Final = 30
"""What a container that is replaced or no longer declared gets between SIGTERM and SIGKILL."""
_END_MARGIN: Final = 5.0
"""Seconds before the deadline at which the last container is killed, so that Docker can still tidy up."""


@dataclass
class _Trouble:
    failures: int
    again_at: float


class Landlord:
    """Looks every second for a notice, and every ten at the containers.

    Told to stop without a notice it leaves them running: they are Docker's, and a new agent takes them over.

    Args:
        pull: brings an image here.
        look: says what the machine has.
        spawn: does something beside us and returns what tells whether it is still at it: an image may take
            longer to come than a notice leaves.
    """

    def __init__(
        self,
        slices: Slices,
        host: Host,
        clock: Clock,
        directory: Path,
        pull: Callable[[str], None],
        look: Callable[[], Machine],
        spawn: Callable[[Callable[[], None]], Callable[[], bool]] | None = None,
    ) -> None:
        self._slices = slices
        self._host = host
        self._clock = clock
        self._directory = directory
        self._pull = pull
        self._look = look
        self._due = 0.0
        self._trouble: dict[str, _Trouble] = {}
        self._stopping = False
        self._spawn = spawn or _thread
        self._busy: Callable[[], bool] = lambda: False
        self._leaving = False
        """A notice is being obeyed: nobody is started any more."""
        self._refused: RefusedError | None = None
        self._looked = False
        self._said = ""

    def stop(self) -> None:
        """End at the next tick; safe in a signal handler."""
        self._stopping = True

    def run(self) -> None:
        """Tick until told to stop, or until the instance is taken and every tenant has ended."""
        while self.tick():
            self._clock.sleep(_LOOK_EVERY)

    def tick(self) -> bool:
        """Do what is due; tell whether to go on.

        What fails is tried again: whoever runs goes on meanwhile, and must hear of a notice.

        Raises:
            RefusedError: at the first look, the tenants ask for more than the machine has.
        """
        doom = notice.read(self._directory)
        if doom:
            self._show(doom)
            if self._stopping or self._clock.wall() >= doom.drain_at:
                self._leaving = True
                return self._evict(doom)
        if self._stopping:
            return False
        if self._clock.monotonic() >= self._due and not self._busy():
            self._due = self._clock.monotonic() + _RECONCILE_EVERY
            self._busy = self._spawn(self._keep)
        if self._refused:
            raise self._refused
        return True

    def _keep(self) -> None:
        try:
            self.reconcile()
        except AgentError as error:
            if isinstance(error, RefusedError) and not self._looked:
                self._refused = error
            elif str(error) != self._said:
                log.error("tenants cannot be looked after", error=str(error))
            self._said = str(error)
        else:
            self._said, self._looked = "", True

    def reconcile(self) -> None:
        """Remove who is not declared, then start who is missing and replace who has changed.

        One tenant's failure is logged and tried again later; the others do not notice.

        Raises:
            RefusedError: the tenants ask for more than the machine has; what runs is left as it is.
            AgentError: Docker or the driver does not answer.
        """
        docker.public(self._directory).mkdir(parents=True, exist_ok=True)
        found = docker.running(self._host)
        declared = {tenant.name: tenant for tenant in self._slices.tenants}
        machine = self._look()
        shares = plan(self._slices, machine, {one.tenant: one.share for one in found})
        bridges = docker.networks(self._host)
        for one in found:
            if one.tenant not in declared:
                self._remove(one)
        for gone in sorted(bridges - declared.keys()):
            self._host.run(["docker", "network", "rm", docker.name_of(gone)])
        here = {one.tenant: one for one in found if one.tenant in declared}
        # Who gives a GPU, CPU or port back comes before who waits for it.
        for name in sorted(declared, key=lambda name: (not _gives(here.get(name), shares[name]), name)):
            self._settle(declared[name], shares[name], here, name in bridges)

    def _settle(self, tenant: Tenant, share: Share, here: dict[str, docker.Found], has_bridge: bool) -> None:
        """Bring one tenant to his share; ``here`` are the containers that have not been removed."""
        argv = docker.run_command(tenant, share, self._directory)
        one, trouble = here.get(tenant.name), self._trouble.get(tenant.name)
        if one and one.alive and one.spec == docker.spec_of(argv):
            self._trouble.pop(tenant.name, None)
            return
        if self._leaving or (trouble and self._clock.monotonic() < trouble.again_at):
            return
        if any(other is not one and _overlap(other.share, share) for other in here.values()):
            log.info("tenant waits for what another still has", tenant=tenant.name)
            return
        try:
            self._pull(tenant.image)  # before the old one ends: it may take its time, or not be there
            if one and not self._leaving:
                self._remove(one)
                del here[tenant.name]
            self._start(tenant, argv, has_bridge)
        except AgentError as error:
            failures = trouble.failures + 1 if trouble else 1
            pause = min(_RECONCILE_EVERY * 2 ** (failures - 1), _LONGEST_BACKOFF)
            self._trouble[tenant.name] = _Trouble(failures, self._clock.monotonic() + pause)
            log.error("tenant not started", tenant=tenant.name, error=str(error), again_in=pause)
            return
        if self._leaving:
            return
        self._trouble.pop(tenant.name, None)
        log.info(
            "tenant started", tenant=tenant.name, gpus=share.gpus, cpus=share.cpus, port=share.port or None
        )

    def _start(self, tenant: Tenant, argv: list[str], has_bridge: bool) -> None:
        owner = [f"--owner={tenant.user}", f"--group={tenant.user}", "--mode=0700"]
        for volume in tenant.volumes:
            if not volume.read_only and not Path(volume.host_path).exists():
                self._host.run(["install", "--directory", *owner, volume.host_path])
        text = "\n".join(docker.environment(tenant, self._directory)) + "\n"
        files.write_atomic(docker.environment_file(self._directory, tenant.name), text, 0o600)
        if not has_bridge:
            self._host.run(docker.network_command(tenant.name))
        if not self._leaving:
            self._host.run(argv)

    def _remove(self, one: docker.Found) -> None:
        self._host.run(["docker", "stop", "-t", str(_STOP_SECONDS), one.id])
        self._host.run(["docker", "rm", "--force", one.id])
        docker.environment_file(self._directory, one.tenant).unlink(missing_ok=True)
        log.info("tenant removed", tenant=one.tenant)

    def _show(self, doom: notice.Notice) -> None:
        """Put the notice where tenants see it; nothing else of ours is there."""
        shown = docker.public(self._directory)
        if notice.read(shown) != doom:
            notice.write(shown, doom)
            log.info("tenants were shown the notice", path=str(shown / NOTICE_FILE))

    def _evict(self, doom: notice.Notice) -> bool:
        """Stop all at once; tell whether somebody may be left, such as who was just being started."""
        left = max(int(doom.deadline - self._clock.wall() - _END_MARGIN), 1)
        try:
            alive = [one.id for one in docker.running(self._host) if one.alive]
            if alive:
                log.warning("tenants told to stop", containers=len(alive), seconds=left)
                self._host.run(["docker", "stop", "-t", str(left), *alive])
        except AgentError as error:
            log.error("tenants cannot be stopped", error=str(error))
            return True
        return bool(alive)


def _thread(work: Callable[[], None]) -> Callable[[], bool]:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread.is_alive


def _pieces(share: Share) -> set[object]:
    port = {("port", share.port)} if share.port else set()
    return {*share.gpus, *share.cpus, *port}


def _overlap(one: Share, other: Share) -> bool:
    return not _pieces(one).isdisjoint(_pieces(other))


def _gives(one: docker.Found | None, share: Share) -> bool:
    """Tell whether a tenant gives back what another may be about to get."""
    return one is not None and not _pieces(one.share) <= _pieces(share)
