"""Fault-tolerant training on Spot Instances: checkpoints, interruption notices and the checkpoint interval.

The core needs no framework; the adapters do: ``spot_training.keras``, ``.torch``, ``.huggingface``.
"""

from spot_training.checkpointer import Checkpointer
from spot_training.errors import (
    InUseError,
    MismatchError,
    OtherRunError,
    RestoreError,
    SaveError,
    SpotTrainingError,
)
from spot_training.interval import Interval
from spot_training.notice import Notice
from spot_training.progress import Progress
from spot_training.ranks import ALONE, Ranks
from spot_training.spot import Spot
from spot_training.storage.manifest import Checkpoint
from spot_training.storage.retention import Keep

__all__ = [
    "ALONE",
    "Checkpoint",
    "Checkpointer",
    "InUseError",
    "Interval",
    "Keep",
    "MismatchError",
    "Notice",
    "OtherRunError",
    "Progress",
    "Ranks",
    "RestoreError",
    "SaveError",
    "Spot",
    "SpotTrainingError",
]
