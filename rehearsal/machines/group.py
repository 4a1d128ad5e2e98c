"""All simulated instances of a group and their volumes."""

from __future__ import annotations

import contextlib
import logging
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from pulumi_on_moto.emulator import AwsClients
from pulumi_on_moto.running.clock import SimulatedTime
from rehearsal.machines.disks.ebs import Disks
from rehearsal.machines.job_migrations import collect_migrations
from rehearsal.machines.journal import Journal
from rehearsal.machines.machine import NodeContext
from rehearsal.machines.node import SimulatedNode
from rehearsal.machines.process import TrainingProfile
from rehearsal.machines.scheduler import Scheduler
from rehearsal.machines.shared import Shared
from rehearsal.machines.times import Times
from rehearsal.results.moves import JobMigrations
from userdata.agent.machine import log


class Nodes:
    """The nodes of one rehearsal, created by ``playing``; only ``advance`` moves time."""

    def __init__(
        self,
        clients: AwsClients,
        clock: SimulatedTime,
        folder: Path,
        profile: TrainingProfile,
        kind: type[SimulatedNode],
    ) -> None:
        self.journal = Journal()
        self._times = Times()
        self.profile = profile
        self.disks = Disks(folder, self._times, self.journal)
        self.shared = Shared(folder, self._times)
        self._clock = clock
        self._folder = folder
        self._scheduler = Scheduler(clock.now, self._move)
        self._context = NodeContext(clients, self._scheduler, self.disks, self.shared, self.journal, profile)
        self._kind = kind
        self._nodes: dict[str, SimulatedNode] = {}
        self._released: dict[str, float] = {}
        self.disks.settle(clock.now)

    def launch(self, instance_id: str, boots: float) -> None:
        """Add a launched instance whose agent starts in ``boots`` seconds."""
        folder = self._folder / "nodes" / instance_id
        self._nodes[instance_id] = self._kind(instance_id, boots, folder, self._context)

    def notice(self, instance_id: str, deadline: float) -> None:
        """Give an instance the interruption notice with this deadline."""
        self._nodes[instance_id].notice(deadline)

    def release(self, instance_id: str) -> None:
        """Release an instance: it is terminated by its group and gets some time to end its work."""
        if instance_id in self._nodes:
            self._nodes[instance_id].release()
            self._released[instance_id] = self._clock.now + self._times.terminate

    def end(self, instance_id: str) -> None:
        """Terminate an instance."""
        self._released.pop(instance_id, None)
        self._nodes.pop(instance_id).end()

    def advance(self, now: float) -> None:
        """Run all nodes until ``now``; raise ``LocalCloudError`` for a node that hangs."""
        for instance_id, at in list(self._released.items()):
            if at <= now:
                self._scheduler.advance(at)
                self.end(instance_id)
        self._scheduler.advance(now)

    @property
    def wake_at(self) -> float | None:
        """Time of the next event that is visible outside the nodes, None if there is none.

        While a snapshot is pending the agents poll and wait: no worker becomes ready before it is complete.
        """
        next_event = self._scheduler.next
        return None if next_event is None else max(next_event, self.disks.copying_until)

    @property
    def has_successor(self) -> bool:
        """Whether there is an instance without a notice."""
        return any(not node.ends for node in self._nodes.values())

    def migrations(self) -> JobMigrations:
        """Return the migrations of the job so far."""
        read, written = self.shared.read_mib / 1024, self.shared.written_mib / 1024
        migrations = collect_migrations(self.journal.entries, self.profile)
        return replace(migrations, read_gib=read, written_gib=written)

    def close(self) -> None:
        """Terminate all nodes."""
        for instance_id in list(self._nodes):
            self.end(instance_id)

    def _move(self, now: float) -> None:
        self._clock.set(now)
        self.disks.settle(now)


@contextlib.contextmanager
def playing(
    clients: AwsClients,
    clock: SimulatedTime,
    profile: TrainingProfile | None = None,
    kind: type[SimulatedNode] = SimulatedNode,
) -> Iterator[Nodes]:
    """Yield nodes of a kind with disks in a temporary folder; EBS is patched meanwhile."""
    with (
        tempfile.TemporaryDirectory(prefix="gpu-spot-nodes-") as folder,
        contextlib.closing(Nodes(clients, clock, Path(folder), profile or TrainingProfile(), kind)) as nodes,
        _silenced(),
        nodes.disks.applied(),
    ):
        yield nodes


@contextlib.contextmanager
def _silenced() -> Iterator[None]:
    """Keep the agents' log lines out of the terminal."""
    propagate = log.LOGGER.propagate
    log.LOGGER.propagate = False
    log.LOGGER.addHandler(quiet := logging.NullHandler())
    try:
        yield
    finally:
        log.LOGGER.removeHandler(quiet)
        log.LOGGER.propagate = propagate
