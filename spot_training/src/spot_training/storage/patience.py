"""Deprecated alias of ``spot_training.storage.retry``, for one minor version."""

from spot_training.deprecation import module_alias
from spot_training.storage.retry import RetryPolicy

__getattr__ = module_alias(__name__, {"Patience": ("spot_training.storage.retry.RetryPolicy", RetryPolicy)})
