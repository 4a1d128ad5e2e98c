"""The subcommand ``run``: a training job."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from contracts.agent.names import UNIT_VOLUME
from userdata.agent.machine import accounts, log
from userdata.agent.machine.background import Guard
from userdata.agent.machine.errors import AgentError, DependencyUnavailableError, LeaseLostError
from userdata.agent.machine.host import LOAD, QUICK, SLOW
from userdata.agent.tasks import costs, holding, job, preparing, recording, snapshots
from userdata.agent.tasks.groups import experiments, nodes, scheduled
from userdata.agent.tasks.node import Node, Stop

if TYPE_CHECKING:
    from contracts.agent.config import Training
    from userdata.agent.aws.jobs import Jobs
    from userdata.agent.lease.renewal import LeaseRenewer
    from userdata.agent.work.failures.fault_handler import RunEnd
    from userdata.agent.work.failures.inspection import Inspector
    from userdata.agent.work.heartbeat import HeartbeatSender
    from userdata.agent.work.training.artifacts import Artifacts
    from userdata.agent.work.training.checkout import Credentials
    from userdata.agent.work.training.environment import JobEnvironment
    from userdata.agent.work.training.record import Recorder
    from userdata.agent.work.training.train import Trainer, TrainingPaths

_POWER_OFF_FINISHED: Final = "+10"
"""Minutes after the job's end; the controller, which runs every minute, terminates the instance before."""
_POWER_OFF_FAULTY: Final = "+5"
"""Minutes in which a faulty host releases its volume, if it still can."""
_POWER_OFF_NOW: Final = "+0"


def run(node: Node) -> int:
    """Train until the job ends, or the instance terminates or is faulty; then release lease and volume."""
    shared, stop = job.training(node), Stop()
    node.on_sigterm(stop)
    node.wait_outside_warm_pool(stop)
    scheduled.enter(node)
    jobs = job.jobs(node)
    if shared.nodes is not None or job.shares_group(node):
        return _run_shared(node, stop)
    if node.config.volume is None:  # with a volume, its unit does this
        holding.end_container(node)
        holding.acquire(node, stop)
    if stop.is_requested or node.is_terminating():
        log.info("instance is terminating: training not started")
        holding.release(node)
        return 0
    if jobs.is_finished():
        preparing.sweep(node, jobs)
        jobs.publish_finished()  # the instance that finished the job may have died before this
        _switch_off(node)
        return 0
    outcome = _train(node, stop, node.heartbeat_sender())
    if outcome == "host":
        replace_host(node)
        return 0
    holding.release(node)  # any other error keeps them for the restart of the unit
    if outcome != "stopped":
        _switch_off(node)
    return 0


def _run_shared(node: Node, stop: Stop) -> int:
    """Train one experiment after another, or as one of the nodes of a job."""

    def train(part: Node, stop: Stop, heartbeats: HeartbeatSender) -> RunEnd:
        outcome = _train(part, stop, heartbeats)
        if outcome != "host":  # `replace_host` releases after scheduling the shutdown
            holding.release(part)
        return outcome

    run_parts = experiments.run if job.training(node).nodes is None else nodes.run
    outcome = run_parts(node, stop, train)
    if outcome == "host":
        replace_host(node)
    elif outcome != "stopped":
        _switch_off(node)
    return 0


def _train(node: Node, stop: Stop, heartbeats: HeartbeatSender) -> RunEnd:
    """Run the job whose lease this instance has.

    Raises:
        LeaseLostError: another instance has the lease; the job is stopped and released.
    """
    jobs = job.jobs(node)
    lease_renewer, guard = _lease_renewer(node), Guard(node.clock)
    is_wanted = lambda: not stop.is_requested and not node.is_terminating()  # noqa: E731
    # The job runs without them.
    ahead = guard.run("snapshots", partial(snapshots.background_snapshots, node, is_wanted))
    recorder = guard.run("recorder", partial(recording.recorder, node, jobs.revision))
    pollers = [
        partial(guard.run, type(poller).__name__, poller.poll) for poller in (ahead, recorder) if poller
    ]
    trainer = _trainer(node, jobs, lease_renewer, heartbeats, pollers, recorder, guard)

    def stop_all() -> None:
        stop()
        trainer.stop()

    node.on_sigterm(stop_all)
    if stop.is_requested:
        trainer.stop()
    closing = contextlib.closing(ahead) if ahead else contextlib.nullcontext()
    fenced = contextlib.nullcontext() if node.config.volume else node.fenced(lambda: lease_renewer.fence_at)
    try:
        with closing, fenced:
            outcome = preparing.run(node, jobs, trainer.run)
    except (LeaseLostError, preparing.DatasetNotPublishedError):
        holding.release(node)
        raise
    recording.record_end(node, recorder, outcome)
    return outcome


def _login(node: Node, training: Training) -> Credentials | None:
    """Return the credentials for the repository's host; None for a public repository."""
    from userdata.agent.aws.clients import read_secret
    from userdata.agent.work.training.checkout import credentials

    if training.repository_secret is None:
        return None
    client = node.clients.secretsmanager(node.config.region)
    return credentials(training.repository_secret, read_secret(client, training.repository_secret))


def _trainer(
    node: Node,
    jobs: Jobs,
    lease_renewer: LeaseRenewer,
    heartbeats: HeartbeatSender,
    pollers: Sequence[Callable[[], object]],
    recorder: Recorder | None,
    guard: Guard,
) -> Trainer:
    from userdata.agent.tasks.environment import job_environment
    from userdata.agent.work.training.train import Trainer, TrainingPaths

    training = job.training(node)
    paths = TrainingPaths(
        job.code(node), node.data, node.directory, job.artifacts(node), job.progress_directory(node)
    )
    environment = job_environment(node, paths.code)

    def on_poll() -> None:
        for poll in pollers:
            poll()

    return Trainer(
        training,
        paths,
        jobs,
        heartbeats,
        node.host,
        node.clock,
        lease_renewer,
        _inspector(node, jobs, lease_renewer),
        partial(_prepare, node, paths, environment),
        job.alarm_metrics(node).increment,
        node.spawn,
        environment=environment,
        on_poll=on_poll,
        results=_artifacts(node, paths),
        recorder=recorder,
        variables={
            **(guard.run("history", partial(recording.history_variables, node)) or {}),
            **(guard.run("prices", partial(costs.price_variables, node)) or {}),
            **nodes.variables(node),
        },
        secrets=partial(node.secret_variables, training.secrets),
        run_in_background=node.run_in_background,
    )


def _lease_renewer(node: Node) -> LeaseRenewer:
    """Return the renewer of this instance's lease.

    An attached volume protects its data even without the lease. With checkpoints on EFS only, the next holder
    may write from the moment that the lease expires.
    """
    from userdata.agent.lease.renewal import LeaseRenewer
    from userdata.agent.lease.store import LEASE_SECONDS

    has_volume = node.config.volume is not None
    if has_volume and job.lease_and_volume(node) is None:
        # It was released when its lease was lost; systemd still counts the oneshot unit as active. A unit
        # that attaches it or copies a dataset is waited for.
        verb = "restart" if node.host.main_pid(UNIT_VOLUME) is None else "start"
        node.host.run(["systemctl", verb, UNIT_VOLUME], LOAD)
    lease_and_volume = job.lease_and_volume(node)
    if lease_and_volume is None:
        raise AgentError(
            "the data volume is not attached" if has_volume else "the job's lease is not acquired"
        )
    renew = partial(job.leases(node).renew, lease_and_volume[0])
    return LeaseRenewer(renew, node.clock, None if has_volume else LEASE_SECONDS, node.run_in_background)


def _artifacts(node: Node, paths: TrainingPaths) -> Artifacts | None:
    """Return the uploader of the job's artifacts; None if they stay on the volume."""
    from userdata.agent.aws import clients
    from userdata.agent.work.training.artifacts import Artifacts

    training = job.training(node)
    if training.artifacts is None:
        return None

    # On a volume only root can write next to the job's directory.
    record = paths.artifacts.with_name(f".{paths.artifacts.name.removeprefix('.')}.json")
    return Artifacts(
        lambda: clients.transfer_manager(node.clients.s3(node.config.region)),
        paths.artifacts,
        training.artifacts,
        record,
        node.clock,
    )


def _prepare(node: Node, paths: TrainingPaths, environment: JobEnvironment) -> None:
    """Create the job's user, mounts and directories, and install its code and environment."""
    from userdata.agent.storage import scratch
    from userdata.agent.work.training.checkout import checkout

    training = job.training(node)
    node.make_user(training.user, uses_aws=training.uses_aws)
    try:
        node.mount()
    except AgentError as error:  # file systems and datasets depend on neither the job nor this host
        raise DependencyUnavailableError(str(error)) from None
    without_volume = node.config.volume is None
    for directory, is_on_efs in (
        (job.checkpoints(node), job.saves_to_efs(node)),
        (paths.artifacts, without_volume),  # a job without a volume has them among its checkpoints
    ):
        # An access point sets the owner of all files, and chown fails. Source: EFS user guide, "Enforcing a
        # user identity using an access point".
        accounts.make_directory(node.host, directory, "" if is_on_efs else training.user)
    if paths.progress != job.checkpoints(node):
        # A script may write to the parent directory, where an adopted volume has another user's files.
        node.host.run(["chown", "--recursive", "--no-dereference", training.user, str(paths.progress)], SLOW)
    scheduled.delete_old_runs(node)
    scratch.prepare_scratch(node.host, training.user)
    environment.clear()
    checkout(node.host, training, paths.code, _login(node, training))
    environment.prepare()


def _inspector(node: Node, jobs: Jobs, lease_renewer: LeaseRenewer) -> Inspector:
    from userdata.agent.work.failures.inspection import Inspector

    def metadata_answers() -> bool:
        try:
            node.metadata.identity()
        except AgentError as error:
            log.warning("metadata service does not respond", error=str(error))
            return False
        return True

    return Inspector(
        node.gpus,
        (node.root, node.data if node.config.volume else job.checkpoints(node)),
        {"the metadata service": metadata_answers, "AWS": jobs.is_aws_reachable},
        node.is_terminating,
        node.clock,
        lease_renewer.renew_if_due,
        node.run_in_background,
    )


def replace_host(node: Node) -> None:
    """Release the job as far as the host still can, and power off: the group or fleet replaces the instance.

    This needs no permission and works for both: SetInstanceHealth exists for Auto Scaling groups only. Their
    health check terminates instances that do not run, and a maintained fleet replaces them. Source: Auto
    Scaling guide, "Health checks for instances in an Auto Scaling group".
    """
    _switch_off(node, _POWER_OFF_FAULTY)  # in case the release hangs
    try:
        holding.release(node)
    except AgentError as error:
        log.error("job not released; its lease expires", error=str(error))
    _switch_off(node, _POWER_OFF_NOW)


def _switch_off(node: Node, minutes: str = _POWER_OFF_FINISHED) -> None:
    """Power off an instance that is faulty, or that nothing terminated after its run ended.

    If its run has ended, the stack may want another revision, which only a newer launch template contains.
    The group or fleet replaces an instance that does not run.
    """
    node.host.run(["shutdown", "--poweroff", minutes], QUICK)
