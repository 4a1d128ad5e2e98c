"""PyTorch that survives, alone or by torchrun: ``Loop`` around the steps, ``EpochBatches`` in the loader."""

from spot_training.torch.data import EpochBatches
from spot_training.torch.loop import Loop

__all__ = ["EpochBatches", "Loop"]
