"""What a preview says of a stack file that it takes: what is allowed and rarely meant, one line each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from infra.schema.jobs.file_system_data import SLOW, data_on_file_system
from infra.schema.jobs.training import ON_THE_VOLUME, Training
from infra.schema.network import Network
from infra.schema.shared_host import SharedHost
from infra.schema.tensorboard import TensorBoard
from infra.schema.work import Work


def of_pools(key: str, entries: Sequence[Work | SharedHost], network: Network) -> Iterator[str]:
    """Yield the entries of the list ``key`` that have one capacity pool."""
    for index, entry in enumerate(entries):
        if len(entry.capacity.types) * len(network.zones) == 1:
            yield (
                f"gpu-spot:{key}[{index}].capacity.instanceTypes: one type in one zone is a single "
                "capacity pool: when AWS takes it back, all spot instances go at once"
            )


def of_images(training: Sequence[Training]) -> Iterator[str]:
    """Yield jobs whose image may not mount their file system."""
    for index, one in enumerate(training):
        aws_own = any(path.startswith("/aws/") for path in one.capacity.images)
        if one.checkpoints != ON_THE_VOLUME and aws_own and one.runs_on == "instances":
            yield (
                f"gpu-spot:training[{index}].checkpoints: a file system needs amazon-efs-utils in the "
                "image, and AWS's own is not known to have it: name one that does in capacity.ami"
            )


def of_tenants(hosts: Sequence[SharedHost]) -> Iterator[str]:
    """Yield what each shared host says of its tenants."""
    for index, host in enumerate(hosts):
        for key, says in host.warnings():
            yield f"gpu-spot:sharedHosts[{index}].{key}: {says}"


def of_data(training: Sequence[Training]) -> Iterator[str]:
    """Yield jobs that seem to read their data from the shared file system."""
    for index, one in enumerate(training):
        for option, says in data_on_file_system(one):
            yield f"gpu-spot:training[{index}].{option}: {says}: {SLOW}"


def of_egress(network: Network, board: TensorBoard | None, training: Sequence[Training]) -> Iterator[str]:
    """Yield what must be reachable inside the VPC, where nothing leaves it."""
    if network.cidr is None or network.egress != "none":
        return
    if board is not None:
        yield "gpu-spot:tensorboard: with network.egress 'none' it cannot be installed from PyPI"
    for index in range(len(training)):
        yield (
            f"gpu-spot:training[{index}].repository: with network.egress 'none' it must be reachable "
            "inside the VPC"
        )


def of_deadlines(training: Sequence[Training], now: datetime) -> Iterator[str]:
    """Yield each deadline that has passed; a finished job's may, so it is no error."""
    for index, one in enumerate(training):
        if one.deadline is not None and one.deadline_at <= now.timestamp():
            yield (
                f"gpu-spot:training[{index}].deadline: {one.deadline} has passed; unless the job is done "
                "it goes on as fast as it can"
            )
