"""Names used by the node agent: tags of jobs and volumes, files, devices and systemd units.

Names shared with the functions are in ``contracts.names``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal, get_args

from contracts.names import TAG_STACK

# Tag on a job's instances, data volumes and their snapshots.
TAG_JOB: Final = "gpu-spot:job"
# Tags on data volumes and their snapshots only.
TAG_NAME: Final = "Name"
TAG_TOKEN: Final = "gpu-spot:token"  # noqa: S105 - a fencing token, not a secret
TAG_SOURCE: Final = "gpu-spot:source"
TAG_STATE: Final = "gpu-spot:state"
TAG_INSTANCE: Final = "gpu-spot:instance"
# Tag on snapshots of prepared datasets: `<name>@<version>`.
TAG_DATASET: Final = "gpu-spot:dataset"
TAG_EBS_DRIVER: Final = "ebs.csi.aws.com/cluster"
"""With the value ``true``: AmazonEBSCSIDriverPolicyV2 lets the EBS driver use the snapshot."""

VOLUME_NAME: Final = "DL-datasets-checkpoints"
SNAPSHOT_NAME: Final = "DL-datasets-checkpoints-snapshot"
# The tag `gpu-spot:state` of a volume or snapshot that no job is to adopt.
STATE_UNUSED: Final = "unused"
# A separate name: the cleanup of a volume's snapshots must not delete a dataset's snapshot.
DATASET_NAME: Final = "DL-dataset"

JOB_KEY: Final = "job"

CONFIG_PATH: Final = Path("/etc/gpu-spot/agent.json")
# A tmpfs: notices and workers do not survive a reboot.
RUN_DIR: Final = Path("/run/gpu-spot")
NOTICE_FILE: Final = "notice.json"
HINT_FILE: Final = "rebalance.json"
WORKERS_DIR: Final = "workers"
READY_DIR: Final = "ready"
LEASE_FILE: Final = "lease.json"
LAST_ATTEMPT_FILE: Final = "last-attempt.json"

DATA_DIR: Final = Path("/dltraining")

JOB_USER: Final = "gpu-spot-job"
"""System user that runs the commands of jobs, and of services without a container."""
SCRATCH_DIR: Final = Path("/var/lib/gpu-spot/scratch")
"""Scratch space for reproducible data; on the instance store if the type has one."""
WORK_HOME: Final = SCRATCH_DIR / "home"
"""``HOME`` of a service's containers, whose own may be read-only."""
CACHE_DIR: Final = SCRATCH_DIR / "cache"
"""Caches of frameworks."""
GIT_USER: Final = "gpu-spot-git"
"""User that fetches the jobs' code; jobs cannot read its credentials."""
CODE_DIR: Final = Path("/var/lib/gpu-spot/code")
"""Checkouts of the jobs' code, by group."""
JOB_HOME: Final = Path("/var/lib/gpu-spot/home")
"""Home of `JOB_USER`, outside of the checkout: a job's caches survive a restart."""
JOB_TMP: Final = Path("/var/lib/gpu-spot/tmp")
"""``TMPDIR`` of `JOB_USER`, emptied when the agent starts the job."""

# On Nitro instances the names have no meaning but must be unique.
# Source: EC2 user guide, "Device names": /dev/sd[f-p] for data volumes.
VOLUME_DEVICES: Final = tuple(f"/dev/sd{letter}" for letter in "fghij")
DatasetDevice = Literal["/dev/sdk", "/dev/sdl", "/dev/sdm", "/dev/sdn", "/dev/sdo", "/dev/sdp"]
DATASET_DEVICES: Final[tuple[DatasetDevice, ...]] = get_args(DatasetDevice)
"""Devices of the volumes that the launch template creates."""

UNIT_HAPROXY: Final = "haproxy.service"
"""HAProxy's own unit, of the operating system's package."""
UNIT_PREPARE: Final = "gpu-spot-prepare.service"
UNIT_RUN: Final = "gpu-spot-run.service"
UNIT_WORK: Final = "gpu-spot-work.service"
UNIT_TENANT_SUPERVISOR: Final = "gpu-spot-landlord.service"
UNIT_VOLUME: Final = "gpu-spot-volume.service"
UNIT_EFS: Final = "gpu-spot-efs.service"
UNIT_WATCH: Final = "gpu-spot-watch.service"
UNIT_METRICS: Final = "gpu-spot-metrics.service"
UNIT_PROXY: Final = "gpu-spot-proxy.service"


def job_tags(stack: str, job: str, name: str = VOLUME_NAME) -> dict[str, str]:
    """Return the tags by which the agent finds a job's volume or, with another name, its snapshots."""
    return {TAG_NAME: name, TAG_STACK: stack, TAG_JOB: job}


GONE_STATES: Final = ("deleting", "deleted", "error")
"""States of volumes and snapshots in which EC2 gives no data any more."""


def is_unclaimed(tags: Mapping[str, str]) -> bool:
    """Return whether a volume or snapshot belongs to no job and is not marked as unused."""
    return TAG_STACK not in tags and TAG_JOB not in tags and tags.get(TAG_STATE) != STATE_UNUSED
