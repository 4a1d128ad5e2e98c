"""Warnings about settings that are allowed but rarely intended, one line each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Final

from infra.schema.cluster.kubernetes import Kubernetes
from infra.schema.jobs.file_system_data import SLOW, data_on_file_system
from infra.schema.jobs.training import Training
from infra.schema.network import Network
from infra.schema.services.service import Service
from infra.schema.shared_host import SharedHost
from infra.schema.tensorboard import TensorBoard
from infra.schema.work import Work

_OF_CAPACITY: Final = (
    ("ami", "ami", "the image of its nodes is kubernetes.nodeImage"),
    ("amis", "amis", "the image of its nodes is kubernetes.nodeImage"),
    ("allocation_strategy", "allocationStrategy", "Karpenter has its own"),
    ("on_demand_ceiling", "onDemandCeiling", "the alarm covers instances only"),
)
"""Field, key and reason."""


def single_pool_warnings(key: str, entries: Sequence[Work | SharedHost], network: Network) -> Iterator[str]:
    """Yield a warning for each entry of the list ``key`` that has a single capacity pool."""
    for index, entry in enumerate(entries):
        zones = 1 if isinstance(entry, Training) and entry.nodes.zone is not None else len(network.zones)
        if len(entry.capacity.types) * zones == 1:
            yield (
                f"gpu-spot:{key}[{index}].capacity.instanceTypes: one type in one zone is a single "
                "capacity pool: one interruption can terminate all Spot Instances at once"
            )


def idle_warnings(services: Sequence[Service]) -> Iterator[str]:
    """Yield a warning for each service that runs no worker and is not scaled up."""
    for index, service in enumerate(services):
        if not service.capacity.target and not service.is_scaled:
            yield (
                f"gpu-spot:services[{index}].capacity.target: 0 without scaling: no worker ever runs; set a "
                "target, or scaling"
            )


def image_warnings(training: Sequence[Training]) -> Iterator[str]:
    """Yield a warning for each job whose image may not be able to mount the file system."""
    for index, job in enumerate(training):
        is_public = any(path.startswith("/aws/") for path in job.capacity.images)
        if job.access_point is not None and is_public and job.runs_on == "instances":
            yield (
                f"gpu-spot:training[{index}].checkpoints: the file system needs amazon-efs-utils in the "
                "machine image, which AWS's image may lack: set capacity.ami to an image that has it"
            )


def tenant_warnings(hosts: Sequence[SharedHost]) -> Iterator[str]:
    """Yield the warnings about the tenants of each shared host."""
    for index, host in enumerate(hosts):
        for key, text in host.warnings():
            yield f"gpu-spot:sharedHosts[{index}].{key}: {text}"


def data_warnings(training: Sequence[Training]) -> Iterator[str]:
    """Yield a warning for each job that seems to read its data from the shared file system."""
    for index, job in enumerate(training):
        for option, text in data_on_file_system(job):
            yield f"gpu-spot:training[{index}].{option}: {text}: {SLOW}"


def egress_warnings(
    network: Network, board: TensorBoard | None, services: Sequence[Service], training: Sequence[Training]
) -> Iterator[str]:
    """Yield a warning for each address that must be reachable inside the VPC."""
    for index, service in enumerate(services) if network.egress == "public" else ():
        queue = service.queue
        if queue is not None and queue.has_secret and queue.existing is not None and queue.broker_of is None:
            yield (
                f"gpu-spot:services[{index}].queue.existing: with network.egress 'public' the watcher, a "
                "function, reaches the broker inside the VPC only"
            )
    if not network.is_closed:
        return
    if board is not None:
        yield "gpu-spot:tensorboard: with network.egress 'none' TensorBoard cannot be installed from PyPI"
    for index in range(len(training)):
        yield (
            f"gpu-spot:training[{index}].repository: with network.egress 'none' the repository must be "
            "reachable inside the VPC"
        )


def cluster_warnings(network: Network, kubernetes: Kubernetes | None) -> Iterator[str]:
    """Yield a warning for a cluster that the first ``pulumi up`` cannot reach."""
    created = None if kubernetes is None else kubernetes.create
    if created is not None and network.cidr is not None and not created.public_cidrs:
        yield (
            "gpu-spot:kubernetes.create.publicCidrs: without it the first pulumi up, which creates the VPC, "
            "cannot reach the cluster's API to install the charts: name the network that runs it until the "
            "VPC is connected"
        )


def deadline_warnings(training: Sequence[Training], now: datetime) -> Iterator[str]:
    """Yield a warning for each deadline in the past. It is not an error: the job may have finished."""
    for index, job in enumerate(training):
        if job.deadline is not None and job.deadline_at <= now.timestamp():
            yield (
                f"gpu-spot:training[{index}].deadline: {job.deadline} has passed; unless the job is "
                "finished, it continues as fast as possible"
            )


def ignored_key_warnings(key: str, entries: Sequence[Work]) -> Iterator[str]:
    """Yield a warning for each key of an entry on Kubernetes that has no effect there.

    Keys that would have to have an effect are rejected instead (docs/kubernetes.md, "What is refused").
    """
    for index, entry in enumerate(entries):
        if entry.runs_on == "kubernetes":
            for below, reason in _ignored_keys(entry):
                yield f"gpu-spot:{key}[{index}].{below}: no effect on Kubernetes: {reason}"


def _ignored_keys(entry: Work) -> Iterator[tuple[str, str]]:
    for field, path, reason in _OF_CAPACITY:
        if field in entry.capacity.model_fields_set:
            yield f"capacity.{path}", reason
    if isinstance(entry, Service):
        yield from _ignored_keys_of_a_service(entry)


def _ignored_keys_of_a_service(service: Service) -> Iterator[tuple[str, str]]:
    scaling, capacity = service.scaling, service.capacity
    if scaling is not None and not scaling.dry_run and capacity.target != scaling.min:
        workers = f"scaling.min ({scaling.min}) to capacity.max workers, not {capacity.target}"
        yield "capacity.target", f"KEDA runs {workers}"
    if scaling is not None and "wait_seconds" in scaling.model_fields_set:
        yield "scaling.waitSeconds", "KEDA knows no throughput"
    if scaling is not None and scaling.headroom:
        yield "scaling.headroom", "KEDA knows no throughput"
    for field, path in (("policy", "policy"), ("policy_parameters", "policyParameters")):
        if field in capacity.fallback.model_fields_set:
            yield f"capacity.fallback.{path}", "Karpenter prefers Spot, and On-Demand is next"
    if service.drain_seconds and "drain_seconds" in service.model_fields_set:
        yield "drainSeconds", "SIGTERM comes at the notice"
    if "health" in service.model_fields_set:
        yield "health", "the health checker covers instances only"
