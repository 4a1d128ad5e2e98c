"""A rehearsal of ``spot-training rehearse``: this process is one start of it, and ends at a step.

Checkpoints go to the rehearsal's folder, each step is saved, and epochs of ``EpochBatches`` are short.
"""

from __future__ import annotations

import json
import os
import signal
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

VARIABLE: Final = "SPOT_TRAINING_REHEARSAL"
EPOCH_STEPS: Final = 6
"""Steps of a rehearsed epoch, so that its end is reached."""


@dataclass(frozen=True)
class Rehearsal:
    """What a start does: at ``step`` it sends itself ``signal``, at ``last_step`` SIGTERM."""

    folder: str
    last_step: int
    step: int = 0
    signal: str = ""

    def variable(self) -> str:
        """Return the value of ``$SPOT_TRAINING_REHEARSAL``."""
        return json.dumps(asdict(self))

    def at(self, step: int) -> None:
        """Send what is due after so many steps."""
        if self.signal and step == self.step:
            os.kill(os.getpid(), getattr(signal, self.signal))
        elif step >= self.last_step:
            os.kill(os.getpid(), signal.SIGTERM)

    def note(self, step: int, epoch: int, samples: str) -> None:
        """Record the samples of a step."""
        with (Path(self.folder) / "steps").open("a") as file:
            file.write(json.dumps([step, epoch, samples]) + "\n")


def current() -> Rehearsal | None:
    """Return this process's rehearsal, if it is one."""
    text = os.environ.get(VARIABLE)
    return Rehearsal(**json.loads(text)) if text else None
