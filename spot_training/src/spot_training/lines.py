"""Lines for the user on standard error, whether or not the script configures logging."""

from __future__ import annotations

import sys


def say(line: str) -> None:
    """Print one line on standard error, after the package's name."""
    sys.stderr.write(f"spot_training: {' '.join(line.split())}\n")
    sys.stderr.flush()
