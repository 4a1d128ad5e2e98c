"""Acquire and release a job's lease and its data volume, if it has one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from userdata.agent.lease.holder import LeaseHolder
from userdata.agent.machine import log
from userdata.agent.machine.errors import AgentError, HostError, RefusedError, WorkCancelledError
from userdata.agent.tasks import job, preparing
from userdata.agent.tasks.groups import scheduled
from userdata.agent.tasks.node import Node, Stop

if TYPE_CHECKING:
    from userdata.agent.storage.volume.execute import Executor


def volume(node: Node, action: str) -> int:
    """Acquire the lease and attach the volume (``up``), or release both (``down``)."""
    if action == "down":
        release(node)
    elif node.config.volume is None:
        log.info("no volume configured")
    else:
        stop = Stop()
        node.on_sigterm(stop)
        node.wait_outside_warm_pool(stop)
        scheduled.enter(node)
        acquire(node, stop)
    return 0


def acquire(node: Node, stop: Stop) -> None:
    """Acquire the lease, attach the volume, if any, and record both; sends heartbeats while it waits.

    Nothing is acquired or recorded if the instance terminates, ``stop`` is requested or the job is finished.
    That is not a failure: systemd must not restart the unit.

    Raises:
        RefusedError: only an operator can resolve the state, and the run has ended as failed; or the host is
            at fault, and is replaced.
    """
    jobs = job.jobs(node)
    if jobs.is_finished():
        log.info("job is finished")
        return
    heartbeats, requested_at = node.heartbeat_sender(), node.clock.wall()

    def on_poll() -> None:
        heartbeats.send([0], waiting=True)
        if stop.is_requested or node.is_terminating():
            raise WorkCancelledError("instance is terminating, or a stop was requested")

    try:
        acquired = _acquire(node, on_poll, lambda: not jobs.is_finished())
        job.record_lease_and_volume(node, *acquired, requested_at=requested_at)
    except WorkCancelledError as reason:
        log.info("job not acquired", reason=str(reason))
        if not node.is_terminating():  # a notice stays in the registry: it may be the only record of it
            heartbeats.deregister(0)
            heartbeats.flush()
    except RefusedError as error:
        heartbeats.deregister(0)  # waiting would not help, and a GPU that waits costs money
        heartbeats.flush()
        job.fail(node, jobs, str(error))
        raise
    except HostError as error:
        from userdata.agent.tasks import crashes

        heartbeats.deregister(0)
        heartbeats.flush()
        crashes.replace(node, str(error))
        raise RefusedError(str(error)) from error  # the unit is not restarted


def try_acquire(node: Node) -> bool:
    """Try to acquire the lease and record it; False: another instance has it, or the job is finished."""
    lease_holder = LeaseHolder(job.leases(node), node.clock)
    if not lease_holder.try_acquire():
        return False
    if job.jobs(node).is_finished():  # since the last poll
        lease_holder.release()
        return False
    job.record_lease_and_volume(node, lease_holder.token, requested_at=node.clock.wall())
    log.info("lease acquired", job=job.lease_name(node), token=lease_holder.token)
    return True


def release(node: Node) -> None:
    """Flush written data, then release the lease and the volume.

    Raises:
        AgentError: a file system is in use; the lease expires by itself.
    """
    from userdata.agent.storage.volume.model import HeldVolume

    lease_and_volume = job.lease_and_volume(node)
    if lease_and_volume is None:
        return
    node = job.current_job(node)
    end_container(node)
    token, volume = lease_and_volume
    if volume:
        _executor(node).down(HeldVolume(token, volume))
    else:
        _unmount_and_release(node, LeaseHolder(job.leases(node), node.clock, token=token))
    job.clear_lease_and_volume(node)


def end_container(node: Node) -> None:
    """End the job's container: it outlives a killed agent and keeps writing."""
    from userdata.agent.tasks.environment import job_environment

    if not job.training(node).image:
        return
    try:
        job_environment(node, job.code(node)).clear()
    except AgentError as error:
        log.warning("job container not removed", error=str(error))


def _acquire(node: Node, on_poll: Callable[[], None], is_wanted: Callable[[], bool]) -> tuple[int, str]:
    if node.config.volume:
        acquired = _executor(node, on_poll).up(is_wanted)
        return acquired.token, acquired.volume
    lease_holder = LeaseHolder(job.leases(node), node.clock, on_poll)
    lease_holder.acquire()
    if is_wanted():  # the previous holder may have finished the job
        return lease_holder.token, ""
    lease_holder.release()
    raise WorkCancelledError("job is finished")


def _unmount_and_release(node: Node, lease_holder: LeaseHolder) -> None:
    """Unmount the file systems of the job, which flushes them, then release the lease."""
    from userdata.agent.storage import efs

    is_owner = lease_holder.try_renew()
    efs.unmount_all(node.host, node.job_mounts)
    if is_owner:
        lease_holder.release()
    log.info("lease released", token=lease_holder.token, lease_held=is_owner)


def _executor(node: Node, on_poll: Callable[[], None] = lambda: None) -> Executor:
    from userdata.agent.storage.volume.execute import Executor, MountContext
    from userdata.agent.storage.volume.fill import S3Filler
    from userdata.agent.storage.volume.growth import VolumeShape

    volume = node.config.volume
    assert volume is not None
    me = node.identity
    s3 = node.clients.s3(node.config.region) if volume.dataset else None
    shape = VolumeShape(volume.size_gib, volume.throughput_mib)
    return Executor(
        MountContext(me.instance, me.zone, node.data, volume.wait_seconds, shape),
        job.ebs(node),
        job.leases(node),
        node.host,
        preparing.filler(node, S3Filler(s3, volume.dataset or "", node.data / "datasets")),
        node.clock,
        on_poll,
        preparing.finder(node),
        _unclaimed(node),
    )


def _unclaimed(node: Node) -> Callable[[], tuple[str, ...]]:
    """Return the lookup of volumes that may be meant for this job.

    It finds none for a job whose volume would hold no checkpoints, or is created from a prepared dataset.
    """
    if node.config.prepared is not None or job.saves_to_efs(node):
        return lambda: ()
    return job.ebs(node).unclaimed
