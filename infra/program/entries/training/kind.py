"""Training jobs, and the builders of their datasets."""

from __future__ import annotations

import dataclasses

import pulumi
import pulumi_aws as aws

from contracts import names
from contracts.agent import config as agent
from contracts.agent.experiments import run_of
from contracts.agent.names import TAG_JOB
from contracts.group.config import RunRules
from infra.components.monitoring import job_alarms
from infra.components.monitoring.monitoring import MonitoredGroup
from infra.components.storage.file_system import FileSystem
from infra.iam.instance_statements import InstanceAccess
from infra.program import group_config
from infra.program.entries import checkpoints
from infra.program.entries import needs as entry_needs
from infra.program.entries.group import EntryGroup, declare_capacity_group
from infra.program.entries.training import agent_config
from infra.program.entries.training.agent_config import JobOutputs
from infra.program.entries.workload import Workload
from infra.program.foundation import Foundation
from infra.schema import Builder, Settings, Training
from infra.schema.jobs.builder import dataset_of, group_of
from infra.schema.jobs.schedule import duration_seconds
from infra.scope import Scope
from userdata.agent.aws.permissions import Need


def needs(settings: Settings) -> frozenset[Need]:
    """Return the needs of the instances of all jobs and dataset builders."""
    entries = settings.on_instances
    jobs = (*entries.jobs, *(builder.entry for builder in entries.builders))
    return frozenset().union(*map(_needs, jobs))


def declare(settings: Settings, foundation: Foundation) -> list[Workload]:
    """Declare the jobs on instances and the builders of their datasets."""
    entries = settings.on_instances
    return [
        *(_job(job, foundation) for job in entries.jobs),
        *(_builder(builder, foundation) for builder in entries.builders),
    ]


def _needs(job: Training, *, prepares: bool = False) -> frozenset[Need]:
    kind_needs: dict[Need, bool] = {
        "run": True,
        "scheduled": job.schedule is not None,
        "volume": job.has_volume,
        "experiments": job.shares_group or job.has_nodes,
        "prepare": prepares,
        "prepared": job.prepare is not None,
        "dataset": job.prepare is None and bool(job.dataset),
        "artifacts": bool(job.artifacts),
        "pull": bool(job.image) and job.capacity.fallback.enabled,
        **entry_needs.work_needs(job),
        "secret": bool(job.repository_secret or job.secret_names),
    }
    return entry_needs.needs(job, _images(job), kind_needs)


def _images(job: Training) -> tuple[str, ...]:
    return (job.image,) if job.image else ()


def _job(job: Training, foundation: Foundation) -> Workload:
    prepared = _prepared(dataset_of(job), group_of(job), foundation.scope) if job.prepare else None
    files = foundation.storage.file_system
    dataset = dataset_of(job) if job.prepare and job.has_volume else ""
    location = checkpoints.stay(job, foundation.scope, {} if files is None else files.paths, dataset)
    return _workload(job, _run(job), prepared, foundation, location)


def _run(job: Training) -> str:
    """Return the id of a job's run, as its instances report it."""
    return run_of(job.revision, job.matrix or {}) if job.shares_group else job.revision


def _rules(job: Training) -> RunRules | None:
    """Return which requests start a run of a job with a schedule."""
    if job.schedule is None:
        return None
    after = duration_seconds(job.deadline_after) if job.deadline_after else 0.0
    return RunRules(job.schedule.overlap, job.schedule.missed, after)


def _builder(builder: Builder, foundation: Foundation) -> Workload:
    """Declare the builder of a dataset: a job whose run is this version of the dataset."""
    prepared = _prepared(builder.dataset, builder.group, foundation.scope)
    run = f"{builder.entry.revision}/{builder.dataset}"
    return _workload(builder.entry, run, prepared, foundation, builder.entry.checkpoints)


def _prepared(dataset: str, group: str, scope: Scope) -> agent.Prepared:
    parameter = names.group_parameter(scope.stack, group, names.PARAMETER_PREPARED)
    return agent.Prepared(dataset, group, parameter)


def _workload(
    job: Training,
    run: str,
    prepared: agent.Prepared | None,
    foundation: Foundation,
    location: pulumi.Input[str],
) -> Workload:
    """Declare a job's group. ``location`` is that of its checkpoints, checked before its instances."""
    scope, storage = foundation.scope, _file_system(job, foundation)
    outputs: dict[str, pulumi.Input[str]] = {"job_table": foundation.state.jobs.name}
    if storage is not None:
        files, point = storage
        outputs |= {"file_system": files.id, "access_point": files.access_point_ids[point]}
    group = EntryGroup(
        entry=job,
        access=_access(job, prepared, foundation),
        work=pulumi.Output.all(pulumi.Output.all(**outputs), location).apply(
            lambda values: agent_config.work(
                job, scope.stack, scope.region, JobOutputs(**values[0]), prepared, scope.kms_key_arn
            )
        ),
        config=group_config.build(
            job.capacity,
            slots=dict.fromkeys(job.capacity.types, 1),
            # Volumes and leases belong to one instance at a time.
            break_before_make=not (job.shares_group or job.has_nodes),
            run=run,
            block=job.capacity_block.reservation if job.capacity_block else "",
            deadline=job.deadline_at,
            runs=_rules(job),
            budget=job.budget or 0.0,
            dataset=prepared.dataset if prepared else "",
            prepared_by=prepared.group if prepared else "",
        ),
        block=job.capacity_block,
        follows_volume=job.has_volume,
        tags={TAG_JOB: job.name},
        zone=job.nodes.zone,
        security_groups=[_between_nodes(job, foundation)] if job.has_nodes else [],
        placement_group=_placement_group(job, foundation.scope) if job.nodes.placement_group else None,
        efa=job.nodes.efa,
    )
    alarms = job_alarms.alarms(
        scope.stack,
        job.name,
        has_volume=job.has_volume,
        has_deadline=job.has_deadline,
        has_budget=bool(job.budget),
    )
    return Workload(
        declare_capacity_group(group, foundation),
        MonitoredGroup(job.name, job.capacity, is_batch=True, alarms=(*alarms,)),
        has_block=job.capacity_block is not None,
    )


def _between_nodes(job: Training, foundation: Foundation) -> pulumi.Output[str]:
    """Return the security group in which the nodes of a job reach each other.

    All ports: gloo and NCCL choose theirs. A rule for outgoing traffic is needed in a network whose groups
    have none, and by EFA (EFA user guide, "Prepare an EFA-enabled security group").
    """
    scope, name = foundation.scope, foundation.scope.name(job.name, "nodes")
    tags = scope.tags(name, group=job.name)
    group = aws.ec2.SecurityGroup(
        name,
        vpc_id=foundation.network.vpc_id,
        description=f"{job.name}: between its nodes",
        tags=tags,
        opts=scope.child_options,
    )
    for direction, rule in (
        ("in", aws.vpc.SecurityGroupIngressRule),
        ("out", aws.vpc.SecurityGroupEgressRule),
    ):
        rule(
            scope.name(job.name, "nodes", direction),
            security_group_id=group.id,
            ip_protocol="-1",
            referenced_security_group_id=group.id,
            description="between nodes",
            tags=tags,
            opts=scope.child_options,
        )
    group_id: pulumi.Output[str] = group.id
    return group_id


def _placement_group(job: Training, scope: Scope) -> pulumi.Output[str]:
    """Return the name of the cluster placement group of a job's nodes, which are in one zone."""
    name = scope.name(job.name, "nodes")
    group = aws.ec2.PlacementGroup(
        name, strategy="cluster", tags=scope.tags(name, group=job.name), opts=scope.child_options
    )
    group_name: pulumi.Output[str] = group.name
    return group_name


def _access(job: Training, prepared: agent.Prepared | None, foundation: Foundation) -> InstanceAccess:
    storage = _file_system(job, foundation)
    prepares = prepared is not None and prepared.group == job.name
    access = foundation.access(_needs(job, prepares=prepares))
    repository = [job.repository_secret] if job.repository_secret else ()
    return dataclasses.replace(
        entry_needs.work_access(job, access, repository),
        job=job.name,
        dataset="" if job.prepare else job.dataset or "",
        prepared=prepared.dataset if prepared else "",
        prepared_by=prepared.group if prepared else "",
        artifacts=job.artifacts or "",
        file_system=storage[0].arn if storage else None,
        access_points=(storage[0].access_point_arns[storage[1]],) if storage else (),
        repositories=entry_needs.repositories(_images(job), foundation.scope),
    )


def _file_system(job: Training, foundation: Foundation) -> tuple[FileSystem, str] | None:
    """Return the file system and the access point of a job's checkpoints; None if they are on its volume."""
    if job.access_point is None or foundation.storage.file_system is None:
        return None
    return foundation.storage.file_system, job.access_point
