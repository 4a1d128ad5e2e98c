"""The subcommand of instances that train: the job's run."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from contracts.agent.names import UNIT_VOLUME
from userdata.agent.machine import log
from userdata.agent.machine.errors import (
    AgentError,
    ElsewhereError,
    LeaseLostError,
)
from userdata.agent.tasks import experiments, holding, job, preparing, recording, snapshots
from userdata.agent.tasks.node import Node, Stop

if TYPE_CHECKING:
    from contracts.agent.config import Training
    from userdata.agent.aws.jobs import Jobs
    from userdata.agent.lease.renewal import Keeper
    from userdata.agent.work.failures.inspection import Inspector
    from userdata.agent.work.failures.judge import RunEnd
    from userdata.agent.work.heartbeat import Heart
    from userdata.agent.work.training.artifacts import Artifacts
    from userdata.agent.work.training.checkout import Credentials
    from userdata.agent.work.training.environment import Workplace
    from userdata.agent.work.training.record import Recorder
    from userdata.agent.work.training.train import Trainer, TrainingPlace

_LEFT_ALONE: Final = "+10"
"""Minutes after its end in which the controller, who looks every minute, has let the instance go."""
_LET_GO: Final = "+5"
"""Minutes in which a host that is no good has let go of the volume, or never will."""
_AT_ONCE: Final = "+0"


def run(node: Node) -> int:
    """Train until the job has ended, or the instance is being taken or no good; then let the volume go."""
    jobs, stop = job.jobs(node), Stop()
    node.on_sigterm(stop)
    node.gate(stop)
    if job.training(node).experiments:
        return _run_experiments(node, stop)
    if node.config.volume is None:  # with one the unit of the volume has seen to it
        holding.end_container(node)
        holding.hold(node, stop)
    if stop.told or node.is_taken():
        log.info("the instance is being taken: nothing is started")
        holding.let_go(node)
        return 0
    if jobs.finished():
        preparing.sweep(node, jobs)
        jobs.take_down()  # again: the instance that finished the job may not have come to it
        _switch_off(node)
        return 0
    outcome = _train(node, stop, node.heart())
    if outcome == "host":
        _replace(node)
        return 0
    holding.let_go(node)  # any other error keeps it here for the restart
    if outcome != "stopped":
        _switch_off(node)
    return 0


def _run_experiments(node: Node, stop: Stop) -> int:
    """Train one experiment after another."""

    def train(one: Node, stop: Stop, heart: Heart) -> RunEnd:
        outcome = _train(one, stop, heart)
        if outcome != "host":  # such a one lets go with its power already on its way off
            holding.let_go(one)
        return outcome

    outcome = experiments.run(node, stop, train)
    if outcome == "host":
        _replace(node)
    elif outcome != "stopped":
        _switch_off(node)
    return 0


def _train(node: Node, stop: Stop, heart: Heart) -> RunEnd:
    """Run the job that is held here.

    Raises:
        LeaseLostError: another instance has it; it has been let go.
    """
    jobs = job.jobs(node)
    keeper = _keeper(node)
    ahead = snapshots.ahead(node, lambda: not stop.told and not node.is_taken())
    record = recording.recorder(node, jobs.revision)
    looks = [one.look for one in (ahead, record) if one is not None]
    trainer = _trainer(node, jobs, keeper, heart, looks, record)

    def stop_all() -> None:
        stop()
        trainer.stop()

    node.on_sigterm(stop_all)
    if stop.told:
        trainer.stop()
    beside = contextlib.closing(ahead) if ahead else contextlib.nullcontext()
    fenced = contextlib.nullcontext() if node.config.volume else node.fenced(lambda: keeper.dead_at)
    try:
        with beside, fenced:
            outcome = preparing.run(node, jobs, trainer.run)
    except (LeaseLostError, preparing.NotKeptError):
        holding.let_go(node)
        raise
    if record is not None:
        record.ended(outcome)
    return outcome


def _login(node: Node, training: Training) -> Credentials | None:
    """Return what the repository's host wants to see; None for a public one."""
    from userdata.agent.aws import secrets
    from userdata.agent.work.training.checkout import credentials

    if training.repository_secret is None:
        return None
    client = node.clients.secretsmanager(node.config.region)
    return credentials(training.repository_secret, secrets.read(client, training.repository_secret))


def _trainer(
    node: Node,
    jobs: Jobs,
    keeper: Keeper,
    heart: Heart,
    looks: Sequence[Callable[[], None]],
    record: Recorder | None,
) -> Trainer:
    from userdata.agent.aws.alarm_metrics import Bell
    from userdata.agent.tasks.environment import job_environment
    from userdata.agent.work.training.train import Trainer, TrainingPlace

    config, training = node.config, job.training(node)
    place = TrainingPlace(job.code(node), node.data, node.directory, job.artifacts(node))
    within = job_environment(node, place.code)

    def look_after() -> None:
        for look in looks:
            look()

    return Trainer(
        training,
        place,
        jobs,
        heart,
        node.host,
        node.clock,
        keeper,
        _inspector(node, jobs, keeper),
        partial(_make_ready, node, place, within),
        Bell(node.clients.cloudwatch(config.region), config.stack, config.group).ring,
        node.spawn,
        within=within,
        look_after=look_after,
        results=_results(node, place),
        record=record,
        told=recording.told(node),
    )


def _keeper(node: Node) -> Keeper:
    """Return who keeps the lease that is held here.

    An attached volume is nobody else's, whoever has the lease. Checkpoints on EFS alone are the next
    holder's from the moment that the lease has run out.
    """
    from userdata.agent.lease.renewal import Keeper
    from userdata.agent.lease.store import LEASE_SECONDS

    has_volume = node.config.volume is not None
    if has_volume and job.held(node) is None:
        # It was given up when its lease was lost; the oneshot unit still counts as active.
        node.host.run(["systemctl", "restart", UNIT_VOLUME])
    held = job.held(node)
    if held is None:
        raise AgentError("the data volume is not here" if has_volume else "the job's lease is not held here")
    renew = partial(job.leases(node).renew, held[0])
    return Keeper(renew, node.clock, None if has_volume else LEASE_SECONDS)


def _results(node: Node, place: TrainingPlace) -> Artifacts | None:
    """Return what brings the job's artifacts to S3; None where they stay."""
    from userdata.agent.aws import clients
    from userdata.agent.work.training.artifacts import Artifacts

    training = job.training(node)
    if training.artifacts is None:
        return None

    # On a volume only we can write beside the job's own folder.
    record = place.artifacts.with_name(f".{place.artifacts.name.removeprefix('.')}.json")
    return Artifacts(
        lambda: clients.uploader(node.clients.s3(node.config.region)),
        place.artifacts,
        training.artifacts,
        record,
        node.clock,
    )


def _make_ready(node: Node, place: TrainingPlace, within: Workplace) -> None:
    """Bring here what the command needs."""
    from userdata.agent.storage import scratch
    from userdata.agent.work.training.checkout import checkout

    training = job.training(node)
    node.make_user(training.user)
    try:
        node.mount()
    except AgentError as error:  # neither the job nor this host makes file systems and datasets
        raise ElsewhereError(str(error)) from None
    for folder in (job.checkpoints(node), place.artifacts):
        is_on_efs = any(folder.is_relative_to(mount.path) for mount in node.config.efs)
        # An access point makes all of it its own user's, whoever writes; nobody else can be given it (EFS
        # user guide, "Enforcing a user identity using an access point").
        made = ["mkdir", "--parents"] if is_on_efs else ["install", "--directory", f"--owner={training.user}"]
        node.host.run([*made, str(folder)])
    scratch.prepare(node.host, training.user)
    within.clear()
    checkout(node.host, training, place.code, _login(node, training))
    within.prepare()


def _inspector(node: Node, jobs: Jobs, keeper: Keeper) -> Inspector:
    from userdata.agent.work.failures.inspection import Inspector

    def metadata_answers() -> bool:
        try:
            node.metadata.identity()
        except AgentError as error:
            log.warning("the metadata service does not answer", error=str(error))
            return False
        return True

    return Inspector(
        node.gpus,
        (node.root, node.data if node.config.volume else job.checkpoints(node)),
        {"the metadata service": metadata_answers, "AWS": jobs.answers},
        node.is_taken,
        node.clock,
        keeper.keep,
    )


def _replace(node: Node) -> None:
    """Let the job go as far as the host still can, and switch it off: group or fleet replace it.

    That way serves both, and takes no permission: a health status can be set in Auto Scaling groups only
    (SetInstanceHealth). Their health check ends whatever does not run (Auto Scaling guide, "Health checks for
    instances in an Auto Scaling group"), a fleet that is maintained replaces it.
    """
    _switch_off(node, _LET_GO)  # should the rest hang
    try:
        holding.let_go(node)
    except AgentError as error:
        log.error("the job is not let go: its lease runs out", error=str(error))
    _switch_off(node, _AT_ONCE)


def _switch_off(node: Node, minutes: str = _LEFT_ALONE) -> None:
    """End an instance whose run has ended and which nobody lets go, or which is no good.

    Where its run has ended the stack asks for another revision, which only a younger template knows: group or
    fleet replace an instance that does not run.
    """
    node.host.run(["shutdown", "--poweroff", minutes])
