"""``python -m gpu_spot``."""

from __future__ import annotations

import sys

from gpu_spot.cli import main

sys.exit(main())
