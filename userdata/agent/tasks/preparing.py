"""A dataset that is prepared: made by a job of its own, kept as a snapshot, copied by nobody."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from contracts.names import METRIC_JOB_FAILURES
from userdata.agent.aws.alarm_metrics import Bell
from userdata.agent.aws.prepared import BuilderJobs, counted, find
from userdata.agent.lease.renewal import Keeper
from userdata.agent.machine import files, log
from userdata.agent.machine.errors import AgentError, LeaseLostError
from userdata.agent.storage.volume import prepared
from userdata.agent.storage.volume.ebs import NotThereError, PassingError
from userdata.agent.tasks import job
from userdata.agent.tasks.node import Node, Stop

if TYPE_CHECKING:
    from userdata.agent.aws.jobs import Jobs
    from userdata.agent.storage.volume.execute import Filler
    from userdata.agent.work.failures.judge import RunEnd

_LOOK_EVERY: Final = 5.0
_TRIES_FILE: Final = "keep-tries.json"


class NotKeptError(AgentError):
    """No snapshot came of a complete dataset; the volume is given back, and the next start tries again."""


def filler(node: Node, first: Filler) -> Filler:
    """Return what a volume holds before work begins: what ``first`` copies, unless a dataset is prepared."""
    config = node.config
    if config.prepared is None:
        return first
    if config.prepares:
        return prepared.BuilderFiller(config.prepared.dataset, node.data, first)
    return prepared.PreparedFiller(config.prepared.dataset, node.data / "datasets")


def finder(node: Node) -> Callable[[], str | None]:
    """Return who finds the snapshot that a job's first volume is made from; it is asked for once."""
    config, known = node.config, list[str]()
    wanted, training = config.prepared, config.training
    if wanted is None or training is None or config.prepares:
        return lambda: None

    def look() -> str:
        if not known:
            dynamodb, ec2 = node.clients.dynamodb(config.region), node.clients.ec2(config.region)
            known.append(find(dynamodb, ec2, training.job_table, wanted))
        return known[0]

    return look


def run(node: Node, jobs: Jobs, work: Callable[[], RunEnd]) -> RunEnd:
    """Run a job, which ``work`` does; one that prepares a dataset ends when a snapshot of it counts.

    Raises:
        NotKeptError: see there.
    """
    if not isinstance(jobs, BuilderJobs):
        return work()
    wanted = node.config.prepares
    assert wanted is not None
    if not prepared.is_complete(wanted.dataset, node.data / "datasets"):
        _open(node)
        outcome = work()
        if outcome != "done":
            return outcome
        prepared.complete(wanted.dataset, node.data / "datasets")
    return _Shelf(node, jobs).keep()


def sweep(node: Node, jobs: Jobs) -> None:
    """End what an instance has left that died between its snapshot and its end."""
    if isinstance(jobs, BuilderJobs) and jobs.is_kept():
        _Shelf(node, jobs).sweep()
        jobs.mark_kept()


def _open(node: Node) -> None:
    """Let the command write where others only read."""
    training, folder = node.config.training, node.data / "datasets"
    assert training is not None
    node.host.run(["install", "--directory", f"--owner={training.user}", str(folder)])
    node.host.run(["chown", "--recursive", training.user, str(folder)])


class _Shelf:
    """Makes a snapshot of the dataset's volume the one that counts, and clears the rest away."""

    def __init__(self, node: Node, jobs: BuilderJobs) -> None:
        wanted = node.config.prepares
        assert wanted is not None
        self._node, self._jobs, self._training, self._dataset = node, jobs, job.training(node), wanted.dataset
        self._dynamodb = node.clients.dynamodb(node.config.region)
        self._ebs, self._leases = job.ebs(node), job.leases(node)
        self._stop = Stop()

    def keep(self) -> RunEnd:
        """Make a snapshot that counts, unless the instance is being taken before.

        Raises:
            NotKeptError: something went wrong; after as many times as a run may fail the job has failed.
            LeaseLostError: another instance is at it.
        """
        try:
            return self._keep()
        except LeaseLostError:
            raise
        except AgentError as error:
            node, config = self._node, self._node.config
            path = node.directory / _TRIES_FILE
            tries = int((files.read_json(path) or {}).get("tries", 0)) + 1
            files.write_json(path, {"tries": tries})
            log.error("dataset not kept", dataset=self._dataset, error=str(error), tries=tries)
            if tries <= self._training.max_restarts:
                raise NotKeptError(f"dataset {self._dataset}: {error}") from None
            self._jobs.mark("failed", str(error))
            Bell(node.clients.cloudwatch(config.region), config.stack, config.group).ring(METRIC_JOB_FAILURES)
            self._jobs.take_down()
            return "failed"

    def _keep(self) -> RunEnd:
        node = self._node
        node.on_sigterm(self._stop)
        held = job.held(node)
        if held is None:
            raise AgentError("the data volume is not here")
        token, volume = held
        self._leases.renew(token)
        if node.host.mounted(node.data):
            node.host.unmount(node.data)  # all of it is on the volume, and nobody writes any more
        snapshot = self._ebs.keep(volume, token, self._dataset)
        log.info("snapshot of the dataset begun", dataset=self._dataset, snapshot=snapshot)
        if not self._wait(token, lambda: self._is_completed(snapshot)):
            return "stopped"
        self._leases.keep(token, self._dataset, snapshot)
        log.info("dataset is kept", dataset=self._dataset, snapshot=snapshot)
        self._clear(token)
        self._jobs.mark_kept()
        self._jobs.take_down()
        return "done"

    def sweep(self) -> None:
        """Clear away under a lease of our own, where nobody holds one and the home is forgotten."""
        lease = self._leases.acquire()
        if lease is None:
            return
        if lease.volume is None:
            self._clear(lease.token)
        self._leases.release(lease.token)

    def _clear(self, token: int) -> None:
        """Delete volumes, and all snapshots but those that count."""
        node, me = self._node, self._node.identity.instance
        heart = node.heart()

        def is_clear() -> bool:
            busy = False
            for one in self._ebs.volumes():
                if one.instance == me and one.attachment == "attached":
                    self._ebs.detach(one.id, me)
                    busy = True
                elif one.instance is None and one.state == "available":
                    self._ebs.delete_volume(one.id)
                elif one.instance == me:
                    busy = True
            return not busy

        self._wait(token, is_clear)
        counts = set(counted(self._dynamodb, self._training.job_table, self._training.job).values())
        for snapshot in (*self._ebs.snapshots(), *self._ebs.kept()):  # those of its moves, too
            if snapshot.id not in counts:
                with contextlib.suppress(NotThereError, PassingError):  # the next version's run looks again
                    self._ebs.delete_snapshot(snapshot.id)
        heart.leave(0)

    def _is_completed(self, snapshot: str) -> bool:
        found = next((one for one in self._ebs.kept() if one.id == snapshot), None)
        if found is not None and found.state == "error":
            raise AgentError(f"snapshot {snapshot} failed")
        return found is not None and found.state == "completed"

    def _wait(self, token: int, is_over: Callable[[], bool]) -> bool:
        """Look until it is over, beating and renewing; False when the instance is being taken before."""
        node, clock, heart = self._node, self._node.clock, self._node.heart()
        keeper = Keeper(partial(self._leases.renew, token), clock)
        while True:
            keeper.keep()
            heart.beat([0])
            try:
                if is_over():
                    return True
            except (PassingError, NotThereError) as error:
                log.info("look must wait", error=str(error))
            if self._stop.told or node.is_taken():
                return False
            clock.sleep(_LOOK_EVERY)
