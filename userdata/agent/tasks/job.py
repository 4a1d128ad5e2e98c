"""What a job's subcommands have in common: its table item, its lease, its volumes, its places."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from contracts.agent import experiments
from contracts.agent.names import CODE_DIR, LEASE_FILE, SCRATCH_DIR
from userdata.agent.machine import files
from userdata.agent.machine.errors import ConfigError

if TYPE_CHECKING:
    from contracts.agent.config import Training
    from userdata.agent.aws.jobs import Jobs
    from userdata.agent.lease.store import DynamoLease
    from userdata.agent.storage.volume.ebs import AwsEbs
    from userdata.agent.tasks.node import Node


def training(node: Node) -> Training:
    """Return the job of this instance; raises `ConfigError` where it has none."""
    if node.config.training is None:
        raise ConfigError("training: missing; this instance has none")
    return node.config.training


def code(node: Node) -> Path:
    """Return where the job's checkout is."""
    return CODE_DIR / node.config.group  # its experiments have the same


def checkpoints(node: Node) -> Path:
    """Return where the job's checkpoints are, on its volume or on EFS."""
    return node.data / "checkpoints" / training(node).job


def artifacts(node: Node) -> Path:
    """Return where the job leaves its results: without a volume beside its checkpoints, as none of them."""
    if node.config.volume is None:
        return checkpoints(node) / ".artifacts"
    return node.data / "artifacts" / training(node).job


def environments(node: Node) -> Path:
    """Return where Pythons are kept that were built for the job: without a volume they do not last."""
    return (SCRATCH_DIR if node.config.volume is None else node.data) / "environments"


def experiment(node: Node, name: str) -> Node:
    """Return this machine as it is while it runs one of its group's experiments: a job like any other."""
    shared = training(node)
    chosen = experiments.by_name(shared.job, shared.experiments)[name]
    own = replace(
        shared,
        job=name,
        environment={**shared.environment, **chosen},
        artifacts=shared.artifacts and f"{shared.artifacts}{name}/",
        experiments={},
    )
    made = copy.copy(node)
    made.config = replace(node.config, training=own)
    return made


def at_hand(node: Node) -> Node:
    """Return this machine as it is for the job that is held here, which may be one of several experiments."""
    name = (files.read_json(node.directory / LEASE_FILE) or {}).get("experiment")
    return experiment(node, str(name)) if name and training(node).experiments else node


def jobs(node: Node) -> Jobs:
    """Return the job's state in its table; of a job that prepares a dataset, the dataset's."""
    from userdata.agent.aws.experiments import ExperimentJobs
    from userdata.agent.aws.jobs import Jobs
    from userdata.agent.aws.prepared import BuilderJobs

    job, region, wanted = training(node), node.config.region, node.config.prepares
    arguments = (
        node.clients.dynamodb(region),
        node.clients.ssm(region),
        job.job_table,
        job.job,
        # A version of a dataset is a run of its own, as the group's `config` has it.
        f"{job.revision}/{wanted.dataset}" if wanted else job.revision,
        job.finished_parameter,
        node.clock,
    )
    if wanted:
        return BuilderJobs(wanted, *arguments)
    return Jobs(*arguments) if job.job == node.config.group else ExperimentJobs(*arguments)


def leases(node: Node) -> DynamoLease:
    """Return the job's lease as this instance sees it."""
    from userdata.agent.lease.store import DynamoLease

    job, dynamodb = training(node), node.clients.dynamodb(node.config.region)
    return DynamoLease(dynamodb, job.job_table, job.job, node.identity.instance, node.clock)


def ebs(node: Node) -> AwsEbs:
    """Return the volumes and snapshots of a job that has a data volume."""
    from userdata.agent.storage.volume.ebs import AwsEbs

    config = node.config
    assert config.volume is not None
    return AwsEbs(
        node.clients.ec2(config.region), config.stack, config.group, training(node).job, config.volume
    )


def held(node: Node) -> tuple[int, str] | None:
    """Return what is held here: the lease's token, and the volume, empty without one; None: nothing."""
    found = files.read_json(node.directory / LEASE_FILE)
    return (int(found["token"]), str(found.get("volume", ""))) if found else None


def note_held(node: Node, token: int, volume: str = "") -> None:
    """Write down what this instance holds, for the next of its processes."""
    name = training(node).job
    told = {"volume": volume, "experiment": name if name != node.config.group else ""}
    files.write_json(
        node.directory / LEASE_FILE, {"token": token, **{key: one for key, one in told.items() if one}}
    )


def forget_held(node: Node) -> None:
    """Note that nothing is held any more."""
    (node.directory / LEASE_FILE).unlink(missing_ok=True)
