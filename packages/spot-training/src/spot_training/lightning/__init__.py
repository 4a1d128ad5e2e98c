"""Fault-tolerant training for Lightning's Trainer: the callback ``SpotCheckpoint``."""

from spot_training.lightning.callback import SpotCheckpoint

__all__ = ["SpotCheckpoint"]
