"""A job's state and paths, shared by the subcommands: table item, lease, volumes, directories."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from contracts.agent import experiments
from contracts.agent.config import EfsMount
from contracts.agent.names import CODE_DIR, LEASE_FILE, SCRATCH_DIR
from contracts.names import METRIC_JOB_FAILURES
from userdata.agent.machine import files
from userdata.agent.machine.errors import ConfigError

if TYPE_CHECKING:
    from contracts.agent.config import Training
    from userdata.agent.aws.alarm_metrics import AlarmMetrics
    from userdata.agent.aws.jobs import Jobs
    from userdata.agent.lease.store import DynamoLease
    from userdata.agent.storage.volume.ebs import AwsEbs
    from userdata.agent.tasks.node import Node


def training(node: Node) -> Training:
    """Return the job of this instance; raise `ConfigError` if it has none."""
    if node.config.training is None:
        raise ConfigError("training is missing; this instance has none")
    return node.config.training


def code(node: Node) -> Path:
    """Return the directory of the job's checkout."""
    return CODE_DIR / node.config.group  # shared by the group's experiments


def checkpoints(node: Node) -> Path:
    """Return the directory of the job's checkpoints, on its volume or on EFS."""
    return node.data / "checkpoints" / training(node).folder


def progress_directory(node: Node) -> Path:
    """Return the directory whose newest file is the job's progress.

    On the job's volume all checkpoints count, also those that a script writes to the parent directory: no
    other job has the volume. On EFS only the job's directory counts: jobs may share an access point. So does
    a run's: there are those of earlier runs beside it.
    """
    directory = checkpoints(node)
    return directory if saves_to_efs(node) or training(node).scheduled else directory.parent


def saves_to_efs(node: Node) -> bool:
    """Return whether the job's checkpoints are on EFS."""
    return isinstance(node.config.checkpoints, EfsMount)


def artifacts(node: Node) -> Path:
    """Return the directory of the job's artifacts; without a volume it is hidden among the checkpoints."""
    if node.config.volume is None:
        return checkpoints(node) / ".artifacts"
    return node.data / "artifacts" / training(node).folder


def environments(node: Node) -> Path:
    """Return the directory of the job's Python environments, which is ephemeral without a volume."""
    return (SCRATCH_DIR if node.config.volume is None else node.data) / "environments"


def lease_name(node: Node) -> str:
    """Return the key of the item with this instance's lease: of the job, or of the node that it is."""
    return node.member or training(node).job


def member(node: Node, name: str) -> Node:
    """Return a copy of ``node`` that is one of the nodes of its job."""
    copied = copy.copy(node)
    copied.member = name
    return copied


def shares_group(node: Node) -> bool:
    """Return whether the job of ``node`` is a group's experiments, and not one of them."""
    shared = training(node)
    return bool(shared.experiments) and shared.job == node.config.group


def experiment_names(node: Node) -> list[str]:
    """Return the names of a group's experiments."""
    return list(experiments.by_name(node.config.group, training(node).experiments))


def run_of_group(node: Node) -> str:
    """Return the id of the run of all of a group's experiments."""
    shared = training(node)
    return experiments.run_of(shared.revision, shared.experiments)


def experiment(node: Node, name: str) -> Node:
    """Return a copy of ``node`` whose job is one of its group's experiments."""
    shared = training(node)
    chosen = experiments.by_name(shared.job, shared.experiments)[name]
    experiment_training = replace(
        shared,
        job=name,
        environment={**shared.environment, **chosen},
        artifacts=shared.artifacts and f"{shared.artifacts}{name}/",
        experiments={},
    )
    copied = copy.copy(node)
    copied.config = replace(node.config, training=experiment_training)
    return copied


def current_job(node: Node) -> Node:
    """Return ``node`` for the job whose lease this instance has, which may be an experiment or a node."""
    name = (files.read_json(node.directory / LEASE_FILE) or {}).get("experiment")
    if not name:
        return node
    if training(node).nodes is not None:
        return member(node, str(name))
    return experiment(node, str(name)) if shares_group(node) else node


def jobs(node: Node) -> Jobs:
    """Return the job's state in its table; for a job that prepares a dataset, the dataset's."""
    from userdata.agent.aws.experiments import ExperimentJobs, NodeJobs
    from userdata.agent.aws.jobs import Jobs
    from userdata.agent.aws.prepared import BuilderJobs

    job, region, prepares = training(node), node.config.region, node.config.dataset_to_prepare
    arguments = (
        node.clients.dynamodb(region),
        node.clients.ssm(region),
        job.job_table,
        job.job,
        # A version of a dataset is a separate run, as in the group's `config`.
        f"{job.revision}/{prepares.dataset}" if prepares else job.run,
        job.finished_parameter,
        node.clock,
    )
    if prepares:
        return BuilderJobs(prepares, *arguments)
    if job.nodes is not None:
        return NodeJobs(*arguments, node=node.member)
    return Jobs(*arguments) if job.job == node.config.group else ExperimentJobs(*arguments)


def fail(node: Node, jobs: Jobs, reason: str) -> None:
    """End the run as failed: first in the table, which later instances read, then by metric and parameter."""
    jobs.mark("failed", reason)
    alarm_metrics(node).increment(METRIC_JOB_FAILURES)
    jobs.publish_finished()


def alarm_metrics(node: Node) -> AlarmMetrics:
    """Return the metrics of the stack's alarms for this instance's group."""
    from userdata.agent.aws.alarm_metrics import AlarmMetrics

    config = node.config
    return AlarmMetrics(node.clients.cloudwatch(config.region), config.stack, config.group)


def leases(node: Node) -> DynamoLease:
    """Return the job's lease, for this instance."""
    from userdata.agent.lease.store import DynamoLease

    table, dynamodb = training(node).job_table, node.clients.dynamodb(node.config.region)
    return DynamoLease(dynamodb, table, lease_name(node), node.identity.instance, node.clock)


def ebs(node: Node) -> AwsEbs:
    """Return the volumes and snapshots of a job with a data volume."""
    from userdata.agent.storage.volume.ebs import AwsEbs

    config = node.config
    assert config.volume is not None
    return AwsEbs(
        node.clients.ec2(config.region), config.stack, config.group, training(node).job, config.volume
    )


def lease_and_volume(node: Node) -> tuple[int, str] | None:
    """Return the token of this instance's lease and its volume, empty without one; None without a lease."""
    record = files.read_json(node.directory / LEASE_FILE)
    return (int(record["token"]), str(record.get("volume", ""))) if record else None


def record_lease_and_volume(node: Node, token: int, volume: str = "", *, requested_at: float = 0.0) -> None:
    """Record this instance's lease and volume, for its later processes.

    ``requested_at``: since when it waited for them (epoch seconds).
    """
    name = lease_name(node)
    values = {
        "volume": volume,
        "experiment": name if name != node.config.group else "",
        "requested": requested_at,
    }
    files.write_json(
        node.directory / LEASE_FILE,
        {"token": token, **{key: value for key, value in values.items() if value}},
    )


def clear_lease_and_volume(node: Node) -> None:
    """Remove the record of the lease and volume."""
    (node.directory / LEASE_FILE).unlink(missing_ok=True)
