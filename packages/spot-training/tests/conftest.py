"""Profiles of hypothesis: ``HYPOTHESIS_PROFILE=ci`` draws the same examples each time."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

_common = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("dev", **_common)
settings.register_profile("ci", derandomize=True, print_blob=True, database=None, max_examples=30, **_common)
settings.register_profile("quick", derandomize=True, database=None, max_examples=20, **_common)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))
