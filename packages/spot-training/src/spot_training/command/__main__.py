"""``python -m spot_training.command``: the command ``spot-training``."""

from __future__ import annotations

import sys

from spot_training.command.cli import main

if __name__ == "__main__":
    sys.exit(main())
