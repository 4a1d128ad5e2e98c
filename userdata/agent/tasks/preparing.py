"""Prepared datasets: a separate job builds one and publishes it as an EBS snapshot, the base of volumes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from userdata.agent.aws.prepared import BuilderJobs, find_snapshot, read_snapshots
from userdata.agent.lease.renewal import LeaseRenewer
from userdata.agent.machine import files, log
from userdata.agent.machine.errors import AgentError, LeaseLostError, TransientError
from userdata.agent.machine.host import QUICK, SLOW
from userdata.agent.storage.volume import prepared
from userdata.agent.tasks import job
from userdata.agent.tasks.node import Node, Stop

if TYPE_CHECKING:
    from userdata.agent.aws.jobs import Jobs
    from userdata.agent.storage.volume.execute import DatasetFiller
    from userdata.agent.work.failures.fault_handler import RunEnd

_POLL_INTERVAL_SECONDS: Final = 5.0
_TRIES_FILE: Final = "keep-tries.json"


class DatasetNotPublishedError(AgentError):
    """A complete dataset could not be published; the volume is released, and the next start retries."""


def filler(node: Node, first: DatasetFiller) -> DatasetFiller:
    """Return the initial content of a volume: that of ``first``, unless the dataset is prepared."""
    config = node.config
    if config.prepared is None:
        return first
    if config.dataset_to_prepare:
        return prepared.BuilderFiller(config.prepared.dataset, node.data, first)
    return prepared.PreparedFiller(config.prepared.dataset, node.data / "datasets")


def finder(node: Node) -> Callable[[], str | None]:
    """Return a function that looks up the snapshot of a job's first volume, once."""
    config, snapshots = node.config, list[str]()
    dataset, training = config.prepared, config.training
    if dataset is None or training is None or config.dataset_to_prepare:
        return lambda: None

    def read() -> str:
        if not snapshots:
            dynamodb, ec2 = node.clients.dynamodb(config.region), node.clients.ec2(config.region)
            snapshots.append(find_snapshot(dynamodb, ec2, training.job_table, dataset))
        return snapshots[0]

    return read


def run(node: Node, jobs: Jobs, work: Callable[[], RunEnd]) -> RunEnd:
    """Run ``work``; a job that prepares a dataset ends after its snapshot is published.

    Raises:
        DatasetNotPublishedError: the snapshot could not be published.
    """
    if not isinstance(jobs, BuilderJobs):
        return work()
    builder = node.config.dataset_to_prepare
    assert builder is not None
    if node.host.mounted(node.data) is None:  # a process that was killed while it published
        raise DatasetNotPublishedError(f"{node.data}: the data volume is not mounted")
    if not prepared.is_complete(builder.dataset, node.data / "datasets"):
        _make_writable(node)
        outcome = work()
        if outcome != "done":
            return outcome
        prepared.mark_complete(builder.dataset, node.data / "datasets")
    return _DatasetPublisher(node, jobs).publish()


def sweep(node: Node, jobs: Jobs) -> None:
    """Clean up after an instance that died between publishing its snapshot and its end."""
    if isinstance(jobs, BuilderJobs) and jobs.has_snapshot():
        _DatasetPublisher(node, jobs).sweep()
        jobs.mark_snapshot_recorded()


def _make_writable(node: Node) -> None:
    """Let the job's command write to the datasets' directory, which is read-only for other jobs."""
    training, directory = node.config.training, node.data / "datasets"
    assert training is not None
    node.host.run(["install", "--directory", f"--owner={training.user}", str(directory)], QUICK)
    node.host.run(["chown", "--recursive", training.user, str(directory)], SLOW)


class _DatasetPublisher:
    """Publishes a snapshot of the dataset's volume, and deletes other volumes and snapshots."""

    def __init__(self, node: Node, jobs: BuilderJobs) -> None:
        builder = node.config.dataset_to_prepare
        assert builder is not None
        self._node, self._jobs, self._dataset = node, jobs, builder.dataset
        self._training = job.training(node)
        self._dynamodb = node.clients.dynamodb(node.config.region)
        self._ebs, self._leases = job.ebs(node), job.leases(node)
        self._stop = Stop()

    def publish(self) -> RunEnd:
        """Create and publish a snapshot; return "stopped" if the instance terminates first.

        Raises:
            DatasetNotPublishedError: it failed; after more than ``max_restarts`` tries the job has failed.
            LeaseLostError: another instance has the lease.
        """
        try:
            return self._publish()
        except LeaseLostError:
            raise
        except AgentError as error:
            path = self._node.directory / _TRIES_FILE
            tries = int((files.read_json(path) or {}).get("tries", 0)) + 1
            files.write_json(path, {"tries": tries})
            log.error("dataset not published", dataset=self._dataset, error=str(error), tries=tries)
            if tries <= self._training.max_restarts:
                raise DatasetNotPublishedError(f"dataset {self._dataset}: {error}") from None
            job.fail(self._node, self._jobs, str(error))
            return "failed"

    def _publish(self) -> RunEnd:
        node = self._node
        node.on_sigterm(self._stop)
        lease_and_volume = job.lease_and_volume(node)
        if lease_and_volume is None:
            raise AgentError("the data volume is not attached")
        token, volume = lease_and_volume
        self._leases.renew(token)
        if node.host.mounted(node.data):
            node.host.unmount(node.data)  # flushes it; no process writes to it any more
        # One that was started before it was killed: the dataset has been complete since.
        snapshots = self._ebs.dataset_snapshots(self._dataset)
        started = [s.id for s in snapshots if s.source == volume and s.state != "error"]
        snapshot = min(started, default="") or self._ebs.create_dataset_snapshot(volume, token, self._dataset)
        log.info("dataset snapshot started", dataset=self._dataset, snapshot=snapshot)
        if not self._wait(token, lambda: self._is_completed(snapshot)):
            return "stopped"
        self._leases.record_dataset_snapshot(token, self._dataset, snapshot)
        log.info("dataset published", dataset=self._dataset, snapshot=snapshot)
        self._clear(token)
        self._jobs.mark_snapshot_recorded()
        self._jobs.publish_finished()
        return "done"

    def sweep(self) -> None:
        """Delete leftovers under a lease, if it is free and records no current volume."""
        lease = self._leases.acquire()
        if lease is None:
            return
        if lease.volume is None:
            self._leases.claim(lease.token)  # no other instance continues an earlier volume
            self._clear(lease.token)
        self._leases.release(lease.token)

    def _clear(self, token: int) -> None:
        """Delete the volumes, and all snapshots that are not published."""
        node, me = self._node, self._node.identity.instance
        heartbeats = node.heartbeat_sender()

        def is_clear() -> bool:
            busy = False
            for volume in self._ebs.volumes():
                if volume.instance == me and volume.attachment == "attached":
                    self._ebs.detach(volume.id, me)
                    busy = True
                elif volume.instance is None and volume.state == "available":
                    self._ebs.delete_volume(volume.id)
                elif volume.instance == me:
                    busy = True
            return not busy

        self._wait(token, is_clear)
        counts = set(read_snapshots(self._dynamodb, self._training.job_table, self._training.job).values())
        for snapshot in (*self._ebs.snapshots(), *self._ebs.dataset_snapshots()):  # also those of migrations
            if snapshot.id not in counts:
                # The run of the next version tries again.
                with contextlib.suppress(TransientError):
                    self._ebs.delete_snapshot(snapshot.id)
        heartbeats.deregister(0)
        heartbeats.flush()

    def _is_completed(self, snapshot: str) -> bool:
        match = next((s for s in self._ebs.dataset_snapshots() if s.id == snapshot), None)
        if match is not None and match.state == "error":
            raise AgentError(f"snapshot {snapshot} failed")
        return match is not None and match.state == "completed"

    def _wait(self, token: int, is_finished: Callable[[], bool]) -> bool:
        """Poll with heartbeats and lease renewal; return False if the instance terminates first."""
        node, clock, heartbeats = self._node, self._node.clock, self._node.heartbeat_sender()
        lease_renewer = LeaseRenewer(
            partial(self._leases.renew, token), clock, run_in_background=node.run_in_background
        )
        while True:
            lease_renewer.renew_if_due()
            heartbeats.send([0])
            try:
                if is_finished():
                    return True
            except TransientError as error:
                log.info("not observable yet", error=str(error))
            if self._stop.is_requested or node.is_terminating():
                return False
            clock.sleep(_POLL_INTERVAL_SECONDS)
