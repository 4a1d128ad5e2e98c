"""Random numbers for delays and samples, apart from the global generator, which users' functions may seed."""

from __future__ import annotations

import random
from typing import Final

RANDOM: Final = random.SystemRandom()
"""Workers whose functions seed the global generator alike would draw alike, and its numbers would change."""
