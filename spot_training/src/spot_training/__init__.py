"""Training that survives its spot instance: checkpoints, the notice, and when to save.

The core needs no framework; the adapters do: ``spot_training.keras``, ``.torch``, ``.huggingface``.
"""

from spot_training.checkpointer import Checkpointer, Saved
from spot_training.errors import (
    InUseError,
    MismatchError,
    RestoreError,
    SaveError,
    SpotTrainingError,
)
from spot_training.interval import Interval
from spot_training.notice import Notice
from spot_training.progress import Progress
from spot_training.ranks import ALONE, Ranks
from spot_training.spot import Spot

__all__ = [
    "ALONE",
    "Checkpointer",
    "InUseError",
    "Interval",
    "MismatchError",
    "Notice",
    "Progress",
    "Ranks",
    "RestoreError",
    "SaveError",
    "Saved",
    "Spot",
    "SpotTrainingError",
]
