"""Fault-tolerant training for PyTorch, with or without torchrun: ``Loop`` and ``EpochBatches``."""

from spot_training.torch.data import EpochBatches
from spot_training.torch.loop import Loop

__all__ = ["EpochBatches", "Loop"]
