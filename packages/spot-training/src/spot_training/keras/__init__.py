"""Fault-tolerant training for Keras 3: ``SpotModel(model).fit(…)`` instead of ``model.fit(…)``."""

from spot_training.keras.model import SpotModel

__all__ = ["SpotModel"]
