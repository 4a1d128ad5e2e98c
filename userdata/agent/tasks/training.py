"""The subcommands of instances that train: the job's volume, and its run."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from userdata.agent.config.names import LEASE_FILE, UNIT_VOLUME
from userdata.agent.machine import files, log
from userdata.agent.machine.errors import AgentError, ConfigError, LeaseLostError, RefusedError, UnwantedError
from userdata.agent.tasks.node import Node, Stop

if TYPE_CHECKING:
    from userdata.agent.aws.jobs import Jobs
    from userdata.agent.config.model import Training
    from userdata.agent.storage.volume.execute import Executor
    from userdata.agent.work.checkout import Credentials

_CODE_DIR: Final = Path("/var/lib/gpu-spot/code")
_LEFT_ALONE: Final = "+10"
"""Minutes after its end in which the controller, who looks every minute, has let the instance go."""


def _executor(node: Node, attend: Callable[[], None] = lambda: None) -> Executor:
    from userdata.agent.storage.volume.ebs import AwsEbs
    from userdata.agent.storage.volume.execute import Executor, MountPlace
    from userdata.agent.storage.volume.fill import S3Filler
    from userdata.agent.storage.volume.lease import DynamoLease

    config, volume, training = node.config, node.config.volume, node.config.training
    assert volume is not None
    assert training is not None
    me, region = node.identity, node.config.region
    dynamodb = node.clients.dynamodb(region)
    s3 = node.clients.s3(region) if volume.dataset else None
    return Executor(
        MountPlace(me.instance, me.zone, node.data, volume.wait_seconds),
        AwsEbs(node.clients.ec2(region), config.stack, config.group, training.job, volume),
        DynamoLease(dynamodb, training.job_table, training.job, me.instance, node.clock),
        node.host,
        S3Filler(s3, volume.dataset or "", node.data / "datasets"),
        node.clock,
        attend,
    )


def _jobs(node: Node) -> Jobs:
    from userdata.agent.aws.jobs import Jobs

    training = node.config.training
    if training is None:
        raise ConfigError("training: missing; this instance has none")
    region = node.config.region
    return Jobs(
        node.clients.dynamodb(region),
        node.clients.ssm(region),
        training.job_table,
        training.job,
        training.revision,
        training.finished_parameter,
        node.clock,
    )


def volume(node: Node, action: str) -> int:
    """Bring the volume here and say under which lease, or give back what is held.

    Until it is here the instance stands by, and its heartbeats say so. One that is being taken brings nothing
    more here: that is no failure, and systemd has nothing to start again.
    """
    from userdata.agent.storage.volume.execute import HeldVolume

    path = node.directory / LEASE_FILE
    if action == "down":
        held = files.read_json(path)
        if held:
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


def run(node: Node) -> int:
    """Train until the job has ended or the instance is being taken, then let the volume go."""
    from userdata.agent.work.checkout import checkout
    from userdata.agent.work.train import Trainer

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
        jobs.take_down()  # again: the instance that finished the job may not have come to it
        _switch_off(node)
        return 0
    renew: Callable[[], None] | None = None
    if node.config.volume:
        from userdata.agent.storage.volume.lease import DynamoLease

        held = files.read_json(node.directory / LEASE_FILE)
        if held is None:  # it was given up when its lease was lost; the oneshot unit still counts as active
            node.host.run(["systemctl", "restart", UNIT_VOLUME])
            held = files.read_json(node.directory / LEASE_FILE)
        if held is None:
            raise AgentError("the data volume is not here")
        me, token = node.identity.instance, int(held["token"])
        dynamodb = node.clients.dynamodb(node.config.region)
        renew = partial(DynamoLease(dynamodb, training.job_table, training.job, me, node.clock).renew, token)

    node.mount()
    owner = f"--owner={training.user}"
    for kind in ("checkpoints", "artifacts"):
        node.host.run(["install", "--directory", owner, str(node.data / kind / training.job)])
    code, heart = _CODE_DIR / training.job, node.heart()
    trainer = Trainer(
        training, code, node.data, node.directory, jobs, heart, node.host, node.clock, renew, node.spawn
    )
    node.on_sigterm(trainer.stop)
    if stop.told:
        trainer.stop()
    checkout(node.host, training, code, _login(node, training))
    try:
        has_ended = trainer.run()
    except LeaseLostError:
        volume(node, "down")
        raise
    volume(node, "down")  # any other error keeps it here for the restart
    if has_ended:
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


def _switch_off(node: Node) -> None:
    """End an instance whose run has ended and which nobody lets go.

    Then the stack asks for another revision, which only a younger template knows: group or fleet replace an
    instance that does not run.
    """
    node.host.run(["shutdown", "--poweroff", _LEFT_ALONE])
