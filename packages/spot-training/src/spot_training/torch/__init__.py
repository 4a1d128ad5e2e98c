"""Fault-tolerant training for PyTorch, with or without torchrun: ``Loop``, ``EpochBatches``, ``init``."""

from spot_training.torch.data import EpochBatches
from spot_training.torch.loop import Loop
from spot_training.torch.nodes import World, init

__all__ = ["EpochBatches", "Loop", "World", "init"]
