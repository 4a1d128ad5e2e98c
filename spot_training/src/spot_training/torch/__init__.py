"""PyTorch that survives, alone or in ranks by torchrun: ``Loop`` around a loop, ``EpochBatches`` in its loader."""

from spot_training.torch.data import EpochBatches
from spot_training.torch.loop import Loop

__all__ = ["EpochBatches", "Loop"]
