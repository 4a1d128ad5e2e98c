"""Names of the agent's own: tags of jobs and volumes, its files, devices and units.

Those that the controller knows, too, stand in ``contracts.names``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal, get_args

# On a job's instances, data volumes and their snapshots.
TAG_JOB: Final = "gpu-spot:job"
# On data volumes and their snapshots only.
TAG_NAME: Final = "Name"
TAG_TOKEN: Final = "gpu-spot:token"  # noqa: S105 - a fencing token, no secret
TAG_SOURCE: Final = "gpu-spot:source"
TAG_STATE: Final = "gpu-spot:state"
# On snapshots of prepared datasets: `<name>@<version>`.
TAG_DATASET: Final = "gpu-spot:dataset"

VOLUME_NAME: Final = "DL-datasets-checkpoints"
SNAPSHOT_NAME: Final = "DL-datasets-checkpoints-snapshot"
# Another name: what is kept is none of a volume's own snapshots, which are swept.
DATASET_NAME: Final = "DL-dataset"

JOB_KEY: Final = "job"

CONFIG_PATH: Final = Path("/etc/gpu-spot/agent.json")
# A tmpfs: a notice or a worker of the boot before does not outlive a reboot.
RUN_DIR: Final = Path("/run/gpu-spot")
NOTICE_FILE: Final = "notice.json"
HINT_FILE: Final = "rebalance.json"
WORKERS_DIR: Final = "workers"
READY_DIR: Final = "ready"
LEASE_FILE: Final = "lease.json"

DATA_DIR: Final = Path("/dltraining")

JOB_USER: Final = "gpu-spot-job"
"""Runs the commands of jobs, and of services outside containers; a system user, made before the first run."""
SCRATCH_DIR: Final = Path("/var/lib/gpu-spot/scratch")
"""For what a job makes again if it is lost: on the instance store, where the type has one."""
GIT_USER: Final = "gpu-spot-git"
"""Fetches the jobs' code: what it is told in confidence no job can read."""
CODE_DIR: Final = Path("/var/lib/gpu-spot/code")
"""Holds the jobs' checkouts, by group."""
JOB_HOME: Final = Path("/var/lib/gpu-spot/home")
"""Its home: no checkout, so what a job caches there survives a restart."""
JOB_TMP: Final = Path("/var/lib/gpu-spot/tmp")
"""Its ``TMPDIR``, emptied when the agent starts the work."""

# On Nitro the names mean nothing but must differ (EC2 user guide, "Device names": /dev/sd[f-p] for data
# volumes).
VOLUME_DEVICES: Final = tuple(f"/dev/sd{letter}" for letter in "fghij")
DatasetDevice = Literal["/dev/sdk", "/dev/sdl", "/dev/sdm", "/dev/sdn", "/dev/sdo", "/dev/sdp"]
DATASET_DEVICES: Final[tuple[DatasetDevice, ...]] = get_args(DatasetDevice)
"""Taken from the launch on, by volumes that the launch template makes."""

UNIT_PREPARE: Final = "gpu-spot-prepare.service"
UNIT_RUN: Final = "gpu-spot-run.service"
UNIT_WORK: Final = "gpu-spot-work.service"
UNIT_LANDLORD: Final = "gpu-spot-landlord.service"
UNIT_VOLUME: Final = "gpu-spot-volume.service"
UNIT_EFS: Final = "gpu-spot-efs.service"
UNIT_WATCH: Final = "gpu-spot-watch.service"
UNIT_METRICS: Final = "gpu-spot-metrics.service"
