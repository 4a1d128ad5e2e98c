"""This machine, as the subcommands need it: all that is real is made here."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from contracts import names
from contracts.agent.config import Config, EfsMount
from contracts.agent.names import DATA_DIR
from userdata.agent.aws import clients, hooks
from userdata.agent.aws.imds import InstanceFacts, Metadata, is_warmed
from userdata.agent.aws.own_host import OwnHost
from userdata.agent.machine import log
from userdata.agent.machine.clock import Clock, SystemClock
from userdata.agent.machine.errors import AgentError, LeaseLostError
from userdata.agent.machine.host import Host, SystemHost
from userdata.agent.work import notice, process
from userdata.agent.work.heartbeat import Heart

if TYPE_CHECKING:  # imported where it is used: `watch` and `metrics` do without
    from userdata.agent.metrics.gpus import Gpus
    from userdata.agent.tenants.model import HostShape
    from userdata.agent.work.process import Spawn

GATE_EVERY: Final = 5.0
HOLD_EVERY: Final = 240.0
HOLDS: Final = 15
"""A launch hook waits for 600 s: two extensions of it may be lost. Who is not ready in an hour never is."""
# Written by cloud-init at every boot, before the network is up.
_INSTANCE_ID: Final = Path("/var/lib/cloud/data/instance-id")


# On the host's own disk.
_ROOT: Final = Path("/var/lib")


class Stop:
    """Whether this process was told to stop, before there is anything that could act on it."""

    def __init__(self) -> None:
        self.told = False

    def __call__(self) -> None:
        """Hear it."""
        self.told = True


class Node:
    """This machine, as the subcommands need it; whoever rehearses one replaces what is not real there."""

    def __init__(self, config: Config, directory: Path, metadata_url: str) -> None:
        self.config = config
        self.directory = directory
        self.data = DATA_DIR
        self.root = _ROOT
        self.clock: Clock = SystemClock()
        self.host: Host = SystemHost()
        self.metadata = (
            OwnHost(self.clock, config.region) if config.on_premises else Metadata(self.clock, metadata_url)
        )
        self.clients: Any = clients
        """Makes clients by service and region, as the module does."""
        self.kernel = Path("/")
        """Below it are the kernel's ``sys`` and ``proc``."""
        self.shape: Callable[[], HostShape] = self._shape
        """Says what a shared host has to deal out."""
        self.send: Callable[[str], None] | None = None
        """Takes metrics' lines in the CloudWatch agent's place."""
        self.on_sigterm: Callable[[Callable[[], None]], None] = _on_sigterm
        self.spawn: Spawn | None = None  # None: the trainer's own, as the job's user
        self.aside: Callable[[Callable[[], None]], None] = _aside
        """Does a piece of work while its caller goes on."""
        self.fenced: Callable[[Callable[[], float]], AbstractContextManager[None]] = self._fenced
        """Ends this machine's job, should a time (monotonic seconds) pass while a block runs."""

    @cached_property
    def identity(self) -> InstanceFacts:
        """Who we are; asked until the metadata service answers."""
        while True:
            try:
                return self.metadata.identity()
            except AgentError as error:
                log.warning("identity unknown", error=str(error))
                self.clock.sleep(1.0)

    @cached_property
    def nvml(self) -> Any | None:
        """The module ``pynvml``; None where the GPUs are of a maker about whom it says nothing."""
        import importlib

        return importlib.import_module("pynvml") if self.config.nvidia else None

    @cached_property
    def gpus(self) -> Gpus | None:
        """This machine's GPUs; None where they are of a maker about whom NVML says nothing."""
        from userdata.agent.metrics.gpus import Gpus, count_on_bus

        return None if self.nvml is None else Gpus(self.nvml, count_on_bus())

    def _shape(self) -> HostShape:
        from userdata.agent.tenants.host import shape

        return shape.look(self.nvml, self.kernel / "sys", self.kernel / "proc/meminfo")

    def instance(self) -> str:
        """Return the instance's id, from cloud-init's file if there is one, else from the metadata."""
        try:
            found = "" if self.config.on_premises else _INSTANCE_ID.read_text().strip()
        except OSError:
            found = ""
        return found if found.startswith("i-") else self.identity.instance

    def gate(self, stop: Stop | None = None) -> None:
        """Wait until the instance is not on its way into the warm pool, or until it is told to stop.

        Until then nothing leases or works.
        """
        said = ""
        while not (stop and stop.told):
            try:
                state = self.metadata.lifecycle_state()
                if not is_warmed(state):
                    return
            except AgentError as error:
                state = str(error)
            if state != said:
                log.info("waiting outside", state=state)
                said = state
            self.clock.sleep(GATE_EVERY)

    def complete(self, hook: str, result: hooks.Result) -> bool:
        """Complete a lifecycle hook of this instance; False while AWS knows no active one.

        Raises:
            AgentError: AWS refused or cannot be reached, or the instance is in no Auto Scaling group.
        """
        client = self.clients.autoscaling(self.config.region)
        return hooks.complete(client, self._group(hook), hook, self.identity.instance, result)

    @contextlib.contextmanager
    def holding(self, hook: str) -> Iterator[None]:
        """Keep a lifecycle hook from timing out while the block lasts, for an hour at most.

        Raises:
            AgentError: the instance is in no Auto Scaling group.
        """
        client = self.clients.autoscaling(self.config.region)
        extend = partial(hooks.extend, client, self._group(hook), hook, self.identity.instance)
        over = threading.Event()

        def keep() -> None:
            for _ in range(HOLDS):
                try:
                    extend()
                except AgentError as error:
                    log.warning("hook not extended", hook=hook, error=str(error))
                if over.wait(HOLD_EVERY):
                    return

        thread = threading.Thread(target=keep, name=f"holds {hook}", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _group(self, hook: str) -> str:
        wanted = self.config.hooks
        group = (wanted.auto_scaling_group if wanted else "") or self.metadata.auto_scaling_group()
        if not group:
            raise AgentError(f"lifecycle hook {hook}: the instance is in no Auto Scaling group")
        return group

    def mount(self) -> None:
        """Mount what the work reads and writes beside its volume; what is mounted stays.

        Raises:
            AgentError: something is missing, such as the data volume: nothing may be written in its place.
        """
        from userdata.agent.storage import datasets, efs

        config = self.config
        if config.volume and self.host.mounted(self.data) is None:
            raise AgentError(f"{self.data}: the data volume is not mounted; nothing is written in its place")
        efs.mount_all(self.host, config.efs)

        def find() -> dict[str, datasets.Attached]:
            return datasets.attached(self.clients.ec2(config.region), self.identity.instance)

        datasets.mount_all(self.host, config.datasets, find)

    @property
    def own_mounts(self) -> tuple[EfsMount, ...]:
        """The access points in the job's own place: mounted while it holds its lease, after its volume."""
        return tuple(one for one in self.config.efs if Path(one.path).is_relative_to(self.data))

    def make_user(self, user: str) -> None:
        """Make the user that a job runs as, and keep it from the instance's role, before anything runs as it.

        Raises:
            AgentError: that cannot be done here.
        """
        from userdata.agent.machine import accounts

        accounts.keep_from_metadata(self.host, accounts.make(self.host, user))

    def is_taken(self) -> bool:
        """Tell whether there is a notice: from then on nothing is begun."""
        return notice.read(self.directory) is not None

    def _fenced(self, dead_at: Callable[[], float]) -> AbstractContextManager[None]:
        from userdata.agent.lease.fence import fenced

        return fenced(dead_at, self.clock, self._strike)

    def _strike(self) -> None:
        """Kill the job, in containers too, and then ourselves: systemd sees to the rest and starts anew."""
        user = process.user_id(self.config.training.user) if self.config.training else None
        for one in self.host.processes():
            if user is not None and one.user == user:
                self.host.signal(one.pid, signal.SIGKILL)
        os._exit(LeaseLostError.exit_code)

    def heart(self) -> Heart:
        """Return the heartbeat of this instance's workers."""
        from userdata.agent.aws.registry import WorkerRegistry

        group = self.config.group
        registry = WorkerRegistry(
            self.clients.dynamodb(self.config.region),
            self.config.registry_table,
            names.on_premises_partition(group) if self.config.on_premises else group,
            self.identity.instance,
        )
        return Heart(registry, self.metadata, self.clock, self.directory, self.config.heartbeat_seconds)


def _aside(work: Callable[[], None]) -> None:
    threading.Thread(target=work, daemon=True).start()


def _on_sigterm(act: Callable[[], None]) -> None:
    signal.signal(signal.SIGTERM, lambda number, frame: act())
