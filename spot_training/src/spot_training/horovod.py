"""The ranks of Horovod, for ``spot_training.torch.Loop``.

``hvd`` is the module ``horovod.torch`` after ``hvd.init()``. Its last release, 0.28.1, does not build against
today's PyTorch: this was run against a double of its API only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


class HorovodRanks:
    """``Loop(ranks=HorovodRanks(hvd), asynchronous=False, ...)``, with the same seeds at each rank.

    Synchronous, because Horovod carries out what the ranks ask for in one order: a second thread's
    collectives would stand among the training's.
    """

    def __init__(self, hvd: Any) -> None:
        self._hvd = hvd
        self.rank: int = hvd.rank()
        self.size: int = hvd.size()

    def any(self, *flags: bool) -> list[bool]:
        """Return for each flag whether a rank has raised it."""
        told = self._hvd.allgather_object(flags, name="spot_training.flags")
        return [any(one) for one in zip(*told, strict=True)]

    def gather(self, text: str) -> Sequence[str]:
        """Wait for all ranks; return each one's text, by rank."""
        texts: Sequence[str] = self._hvd.allgather_object(text, name="spot_training.texts")
        return texts

    def level(self, parts: Mapping[str, Any]) -> None:
        """Give all ranks what rank 0 has restored, or has begun with."""
        for part in parts.values():
            if hasattr(part, "param_groups"):
                self._hvd.broadcast_optimizer_state(part, root_rank=0)
            elif hasattr(part, "parameters"):
                self._hvd.broadcast_parameters(part.state_dict(), root_rank=0)
