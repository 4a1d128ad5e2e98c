"""Warnings about settings that are allowed but rarely intended, one line each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from infra.schema.jobs.file_system_data import SLOW, data_on_file_system
from infra.schema.jobs.training import ON_THE_VOLUME, Training
from infra.schema.network import Network
from infra.schema.shared_host import SharedHost
from infra.schema.tensorboard import TensorBoard
from infra.schema.work import Work


def single_pool_warnings(key: str, entries: Sequence[Work | SharedHost], network: Network) -> Iterator[str]:
    """Yield a warning for each entry of the list ``key`` that has a single capacity pool."""
    for index, entry in enumerate(entries):
        if len(entry.capacity.types) * len(network.zones) == 1:
            yield (
                f"gpu-spot:{key}[{index}].capacity.instanceTypes: one type in one zone is a single "
                "capacity pool: one interruption can terminate all Spot Instances at once"
            )


def image_warnings(training: Sequence[Training]) -> Iterator[str]:
    """Yield a warning for each job whose image may not be able to mount the file system."""
    for index, job in enumerate(training):
        is_public = any(path.startswith("/aws/") for path in job.capacity.images)
        if job.checkpoints != ON_THE_VOLUME and is_public and job.runs_on == "instances":
            yield (
                f"gpu-spot:training[{index}].checkpoints: the file system needs amazon-efs-utils in the "
                "machine "
                "image, which AWS's image may lack: set capacity.ami to an image that has it"
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
    network: Network, board: TensorBoard | None, training: Sequence[Training]
) -> Iterator[str]:
    """Yield a warning for each address that must be reachable inside a VPC without egress."""
    if network.cidr is None or network.egress != "none":
        return
    if board is not None:
        yield "gpu-spot:tensorboard: with network.egress 'none' TensorBoard cannot be installed from PyPI"
    for index in range(len(training)):
        yield (
            f"gpu-spot:training[{index}].repository: with network.egress 'none' the repository must be "
            "reachable inside the VPC"
        )


def deadline_warnings(training: Sequence[Training], now: datetime) -> Iterator[str]:
    """Yield a warning for each deadline in the past. It is no error: the job may have finished."""
    for index, job in enumerate(training):
        if job.deadline is not None and job.deadline_at <= now.timestamp():
            yield (
                f"gpu-spot:training[{index}].deadline: {job.deadline} has passed; unless the job is "
                "finished, it "
                "continues as fast as possible"
            )
