"""Fault-tolerant training for Keras 3: ``SpotModel(model).fit(…)`` instead of ``model.fit(…)``.

Example::

    from spot_training.keras import SpotModel

    spot = SpotModel(model)
    spot.fit(x, y, batch_size=32, epochs=20)
"""

from spot_training.keras.batches import Batches
from spot_training.keras.model import SpotModel

__all__ = ["Batches", "SpotModel"]
