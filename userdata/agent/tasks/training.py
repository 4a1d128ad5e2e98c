"""The subcommands of instances that train: the job's volume, and its run."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from userdata.agent.config.names import LEASE_FILE, UNIT_VOLUME
from userdata.agent.machine import files, log
from userdata.agent.machine.errors import (
    AgentError,
    ConfigError,
    ElsewhereError,
    LeaseLostError,
    RefusedError,
    UnwantedError,
)
from userdata.agent.tasks import preparing, snapshots
from userdata.agent.tasks.node import Node, Stop

if TYPE_CHECKING:
    from userdata.agent.aws.jobs import Jobs
    from userdata.agent.config.model import Training
    from userdata.agent.storage.volume.execute import Executor
    from userdata.agent.work.artifacts import Artifacts, Uploader
    from userdata.agent.work.checkout import Credentials
    from userdata.agent.work.environment import Workplace
    from userdata.agent.work.inspection import Inspector
    from userdata.agent.work.keeper import Keeper
    from userdata.agent.work.train import Trainer, TrainingPlace

_CODE_DIR: Final = Path("/var/lib/gpu-spot/code")
_LEFT_ALONE: Final = "+10"
"""Minutes after its end in which the controller, who looks every minute, has let the instance go."""
_LET_GO: Final = "+5"
"""Minutes in which a host that is no good has let go of the volume, or never will."""
_AT_ONCE: Final = "+0"


def _executor(node: Node, attend: Callable[[], None] = lambda: None) -> Executor:
    from userdata.agent.storage.volume.ebs import AwsEbs
    from userdata.agent.storage.volume.execute import Executor, MountPlace
    from userdata.agent.storage.volume.fill import S3Filler
    from userdata.agent.storage.volume.growth import Shape
    from userdata.agent.storage.volume.lease import DynamoLease

    config, volume, training = node.config, node.config.volume, node.config.training
    assert volume is not None
    assert training is not None
    me, region = node.identity, node.config.region
    dynamodb = node.clients.dynamodb(region)
    s3 = node.clients.s3(region) if volume.dataset else None
    shape = Shape(volume.size_gib, volume.throughput_mib)
    return Executor(
        MountPlace(me.instance, me.zone, node.data, volume.wait_seconds, shape),
        AwsEbs(node.clients.ec2(region), config.stack, config.group, training.job, volume),
        DynamoLease(dynamodb, training.job_table, training.job, me.instance, node.clock),
        node.host,
        preparing.filler(node, S3Filler(s3, volume.dataset or "", node.data / "datasets")),
        node.clock,
        attend,
        preparing.finder(node),
    )


def _jobs(node: Node) -> Jobs:
    from userdata.agent.aws.jobs import Jobs
    from userdata.agent.aws.prepared import BuilderJobs

    training = node.config.training
    if training is None:
        raise ConfigError("training: missing; this instance has none")
    region, wanted = node.config.region, node.config.prepares
    arguments = (
        node.clients.dynamodb(region),
        node.clients.ssm(region),
        training.job_table,
        training.job,
        # A version of a dataset is a run of its own, as the group's `config` has it.
        f"{training.revision}/{wanted.dataset}" if wanted else training.revision,
        training.finished_parameter,
        node.clock,
    )
    return BuilderJobs(wanted, *arguments) if wanted else Jobs(*arguments)


def volume(node: Node, action: str) -> int:
    """Bring the volume here and say under which lease, or give back what is held.

    Until it is here the instance stands by, and its heartbeats say so. One that is being taken brings nothing
    more here: that is no failure, and systemd has nothing to start again.
    """
    from userdata.agent.storage.volume.model import HeldVolume

    path = node.directory / LEASE_FILE
    if action == "down":
        held = files.read_json(path)
        if held:
            _end_container(node)
            _executor(node).down(HeldVolume(int(held["token"]), str(held["volume"])))
            path.unlink(missing_ok=True)
        return 0
    if node.config.volume is None:
        log.info("no volume is configured")
        return 0
    node.gate()
    jobs = _jobs(node)
    if jobs.finished():
        log.info("the job is finished: its volume stays where it is")
        return 0
    heart, stop = node.heart(), Stop()
    node.on_sigterm(stop)

    def attend() -> None:
        heart.beat([0], waiting=True)
        if stop.told or node.is_taken():
            raise UnwantedError("the instance is being taken")

    try:
        here = _executor(node, attend).up(lambda: not jobs.finished())
    except UnwantedError as reason:
        log.info("the volume is not brought here", reason=str(reason))
        if not node.is_taken():  # a notice stays in the registry, in case that nobody else has heard it
            heart.leave(0)
        return 0
    except RefusedError:
        heart.leave(0)  # it would stand by for nothing
        raise
    files.write_json(path, {"token": here.token, "volume": here.volume})
    return 0


def _end_container(node: Node) -> None:
    """End the job's container, which outlives an agent that is killed and would keep the volume busy."""
    from userdata.agent.tasks.environment import job_environment

    training = node.config.training
    if training is None or not training.image:
        return
    try:
        job_environment(node, _CODE_DIR / training.job).clear()
    except AgentError as error:
        log.warning("whether a container is left is not known", error=str(error))


def run(node: Node) -> int:
    """Train until the job has ended, or the instance is being taken or no good; then let the volume go."""
    training = node.config.training
    jobs = _jobs(node)
    assert training is not None
    stop = Stop()
    node.on_sigterm(stop)
    node.gate(stop)
    if stop.told or node.is_taken():
        log.info("the instance is being taken: nothing is started")
        return volume(node, "down")
    if jobs.finished():
        preparing.sweep(node, jobs)
        jobs.take_down()  # again: the instance that finished the job may not have come to it
        _switch_off(node)
        return 0
    renew = _renewal(node)
    ahead = snapshots.ahead(node, lambda: not stop.told and not node.is_taken())
    trainer = _trainer(node, jobs, renew, ahead.look if ahead else lambda: None)
    node.on_sigterm(trainer.stop)
    if stop.told:
        trainer.stop()
    try:
        with contextlib.closing(ahead) if ahead else contextlib.nullcontext():
            outcome = preparing.run(node, jobs, trainer.run)
    except (LeaseLostError, preparing.NotKeptError):
        volume(node, "down")
        raise
    if outcome == "host":
        _replace(node)
        return 0
    volume(node, "down")  # any other error keeps it here for the restart
    if outcome != "stopped":
        _switch_off(node)
    return 0


def _login(node: Node, training: Training) -> Credentials | None:
    """Return what the repository's host wants to see; None for a public one."""
    from userdata.agent.aws import secrets
    from userdata.agent.work.checkout import credentials

    if training.repository_secret is None:
        return None
    client = node.clients.secretsmanager(node.config.region)
    return credentials(training.repository_secret, secrets.read(client, training.repository_secret))


def _trainer(
    node: Node, jobs: Jobs, renew: Callable[[], None] | None, look_after: Callable[[], None]
) -> Trainer:
    from userdata.agent.aws.bell import Bell
    from userdata.agent.tasks.environment import job_environment
    from userdata.agent.work.keeper import Keeper
    from userdata.agent.work.train import Trainer, TrainingPlace

    config, training = node.config, node.config.training
    assert training is not None
    keeper = Keeper(renew, node.clock)
    place = TrainingPlace(_CODE_DIR / training.job, node.data, node.directory)
    within = job_environment(node, place.code)
    return Trainer(
        training,
        place,
        jobs,
        node.heart(),
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
    )


def _renewal(node: Node) -> Callable[[], None] | None:
    """Return what renews the lease of the volume that is here; None for a job without one."""
    from userdata.agent.storage.volume.lease import DynamoLease

    training = node.config.training
    if not node.config.volume or training is None:
        return None
    held = files.read_json(node.directory / LEASE_FILE)
    if held is None:  # it was given up when its lease was lost; the oneshot unit still counts as active
        node.host.run(["systemctl", "restart", UNIT_VOLUME])
        held = files.read_json(node.directory / LEASE_FILE)
    if held is None:
        raise AgentError("the data volume is not here")
    me, token = node.identity.instance, int(held["token"])
    dynamodb = node.clients.dynamodb(node.config.region)
    return partial(DynamoLease(dynamodb, training.job_table, training.job, me, node.clock).renew, token)


def _results(node: Node, place: TrainingPlace) -> Artifacts | None:
    """Return what brings the job's artifacts to S3; None where they stay."""
    from userdata.agent.aws import clients
    from userdata.agent.work.artifacts import Artifacts

    training = node.config.training
    assert training is not None
    if training.artifacts is None:
        return None

    def uploader() -> Uploader:
        made: Uploader = clients.uploader(node.clients.s3(node.config.region))
        return made

    home = place.data / "artifacts"
    # Only we can write beside the job's own folder.
    record = home / f".{training.job}.json"
    return Artifacts(uploader, home / training.job, training.artifacts, record, node.clock)


def _make_ready(node: Node, place: TrainingPlace, within: Workplace) -> None:
    """Bring here what the command needs."""
    from userdata.agent.storage import scratch
    from userdata.agent.work.checkout import checkout

    training = node.config.training
    assert training is not None
    node.make_user(training.user)
    try:
        node.mount()
    except AgentError as error:  # neither the job nor this host makes file systems and datasets
        raise ElsewhereError(str(error)) from None
    owner = f"--owner={training.user}"
    for kind in ("checkpoints", "artifacts"):
        node.host.run(["install", "--directory", owner, str(place.data / kind / training.job)])
    scratch.prepare(node.host, training.user)
    within.clear()
    checkout(node.host, training, place.code, _login(node, training))
    within.prepare()


def _inspector(node: Node, jobs: Jobs, keeper: Keeper) -> Inspector:
    from userdata.agent.work.inspection import Inspector

    def metadata_answers() -> bool:
        try:
            node.metadata.identity()
        except AgentError as error:
            log.warning("the metadata service does not answer", error=str(error))
            return False
        return True

    return Inspector(
        node.gpus,
        (node.root, node.data if node.config.volume else None),
        {"the metadata service": metadata_answers, "AWS": jobs.answers},
        node.is_taken,
        node.clock,
        keeper.keep,
    )


def _replace(node: Node) -> None:
    """Let the volume go as far as the host still can, and switch it off: group or fleet replace it.

    That way serves both, and takes no permission: a health status can be set in Auto Scaling groups only
    (SetInstanceHealth). Their health check ends whatever does not run (Auto Scaling guide, "Health checks for
    instances in an Auto Scaling group"), a fleet that is maintained replaces it.
    """
    _switch_off(node, _LET_GO)  # should the rest hang
    try:
        volume(node, "down")
    except AgentError as error:
        log.error("the volume is not let go: its lease runs out", error=str(error))
    _switch_off(node, _AT_ONCE)


def _switch_off(node: Node, minutes: str = _LEFT_ALONE) -> None:
    """End an instance whose run has ended and which nobody lets go, or which is no good.

    Where its run has ended the stack asks for another revision, which only a younger template knows: group or
    fleet replace an instance that does not run.
    """
    node.host.run(["shutdown", "--poweroff", minutes])
