"""The nodes of one job: each is an instance with the lease of one of the job's node items."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final

from contracts.limits import Within
from contracts.stored import stored

MAX_NODES: Final = 64
MAX_NAME_LENGTH: Final = 24 - len("-node-63")
"""Maximum length of a job's name with several nodes, whose names start with it."""


@stored(is_open=True)
@dataclass(frozen=True)
class JobNodes:
    """How many nodes train together: the job waits below ``min``, and more than ``max`` are not used.

    In the agent's configuration and in the job's item; the stack file's is ``TrainingNodes``.
    """

    min: Annotated[int, Within(1, MAX_NODES)] = 1
    max: Annotated[int, Within(1, MAX_NODES)] = 1

    def __post_init__(self) -> None:
        """Require ``min`` to be at most ``max``."""
        if self.min > self.max:
            raise ValueError(f"nodes.min must be at most nodes.max ({self.max}), not {self.min}")

    def __str__(self) -> str:
        """Return the text that ``spot_training.torch.init()`` reads, such as ``2:4``."""
        return f"{self.min}:{self.max}"

    def names(self, job: str) -> list[str]:
        """Return the names of a job's nodes, the keys of their items in the job table."""
        return [f"{job}-node-{number}" for number in range(self.max)]
