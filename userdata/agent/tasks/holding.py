"""What a job has while it runs here: its lease, and its data volume, if it has one; taken and given back."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from userdata.agent.lease.holder import Tenure
from userdata.agent.machine import log
from userdata.agent.machine.errors import AgentError, RefusedError, UnwantedError
from userdata.agent.tasks import job, preparing
from userdata.agent.tasks.node import Node, Stop

if TYPE_CHECKING:
    from userdata.agent.storage.volume.execute import Executor


def volume(node: Node, action: str) -> int:
    """Take the lease and bring the volume here, or give back what is held."""
    if action == "down":
        let_go(node)
    elif node.config.volume is None:
        log.info("no volume is configured")
    else:
        stop = Stop()
        node.on_sigterm(stop)
        node.gate()
        hold(node, stop)
    return 0


def hold(node: Node, stop: Stop) -> None:
    """Stand by until the lease is ours and the volume, if there is one, is here; note what is held.

    Meanwhile the heartbeats say so. An instance that is being taken or was told to ``stop`` takes nothing
    more, and none takes a job that has ended: nothing is noted then. That is no failure, and systemd has
    nothing to start again.
    """
    jobs = job.jobs(node)
    if jobs.finished():
        log.info("the job is finished: it is left as it is")
        return
    heart = node.heart()

    def attend() -> None:
        heart.beat([0], waiting=True)
        if stop.told or node.is_taken():
            raise UnwantedError("the instance is being taken")

    try:
        job.note_held(node, *_take(node, attend, lambda: not jobs.finished()))
    except UnwantedError as reason:
        log.info("the job is not taken over", reason=str(reason))
        if not node.is_taken():  # a notice stays in the registry, in case that nobody else has heard it
            heart.leave(0)
    except RefusedError:
        heart.leave(0)  # it would stand by for nothing
        raise


def take(node: Node) -> bool:
    """Take the lease at once and note it; False: another instance has it, or the job has ended."""
    tenure = Tenure(job.leases(node), node.clock)
    if not tenure.take_at_once():
        return False
    if job.jobs(node).finished():  # since somebody looked
        tenure.give_back()
        return False
    job.note_held(node, tenure.token)
    log.info("lease acquired", job=job.training(node).job, token=tenure.token)
    return True


def let_go(node: Node) -> None:
    """Give back what is held, once all that was written is where the next holder finds it.

    Raises:
        AgentError: something of it is in use; the lease runs out by itself.
    """
    from userdata.agent.storage.volume.model import HeldVolume

    held = job.held(node)
    if held is None:
        return
    node = job.at_hand(node)
    end_container(node)
    token, home = held
    if home:
        _executor(node).down(HeldVolume(token, home))
    else:
        _leave(node, Tenure(job.leases(node), node.clock, token=token))
    job.forget_held(node)


def end_container(node: Node) -> None:
    """End the job's container, which outlives an agent that is killed and would go on writing."""
    from userdata.agent.tasks.environment import job_environment

    if not job.training(node).image:
        return
    try:
        job_environment(node, job.code(node)).clear()
    except AgentError as error:
        log.warning("whether a container is left is not known", error=str(error))


def _take(node: Node, attend: Callable[[], None], is_wanted: Callable[[], bool]) -> tuple[int, str]:
    if node.config.volume:
        here = _executor(node, attend).up(is_wanted)
        return here.token, here.volume
    tenure = Tenure(job.leases(node), node.clock, attend)
    tenure.take()
    if is_wanted():  # its last holder may have ended the job
        return tenure.token, ""
    tenure.give_back()
    raise UnwantedError("the job has ended")


def _leave(node: Node, tenure: Tenure) -> None:
    """Unmount where the checkpoints are, which flushes what was written, and then release the lease."""
    from userdata.agent.storage import efs

    mine = tenure.is_mine()
    efs.unmount_all(node.host, node.own_mounts)
    if mine:
        tenure.give_back()
    log.info("released", token=tenure.token, lease_held=mine)


def _executor(node: Node, attend: Callable[[], None] = lambda: None) -> Executor:
    from userdata.agent.storage.volume.execute import Executor, MountPlace
    from userdata.agent.storage.volume.fill import S3Filler
    from userdata.agent.storage.volume.growth import Shape

    home = node.config.volume
    assert home is not None
    me = node.identity
    s3 = node.clients.s3(node.config.region) if home.dataset else None
    shape = Shape(home.size_gib, home.throughput_mib)
    return Executor(
        MountPlace(me.instance, me.zone, node.data, home.wait_seconds, shape),
        job.ebs(node),
        job.leases(node),
        node.host,
        preparing.filler(node, S3Filler(s3, home.dataset or "", node.data / "datasets")),
        node.clock,
        attend,
        preparing.finder(node),
    )
