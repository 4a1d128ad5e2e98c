"""Horovod ranks for ``spot_training.torch.Loop``.

``hvd`` is the module ``horovod.torch`` after ``hvd.init()``. Its last release, 0.28.1, does not build against
current PyTorch: this module was tested with a double of its API only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


class HorovodRanks:
    """Ranks for ``Loop(ranks=HorovodRanks(hvd), asynchronous=False, ...)``; use the same seeds on each rank.

    Synchronous: Horovod needs the same order of collectives on all ranks, and those of a second thread would
    interleave with the training's.
    """

    def __init__(self, hvd: Any) -> None:
        self._hvd = hvd
        self.rank: int = hvd.rank()
        self.size: int = hvd.size()

    def any(self, *flags: bool) -> list[bool]:
        """Return for each flag whether it is true on any rank."""
        gathered = self._hvd.allgather_object(flags, name="spot_training.flags")
        return [any(values) for values in zip(*gathered, strict=True)]

    def gather(self, text: str) -> Sequence[str]:
        """Wait for all ranks; return their texts, by rank."""
        texts: Sequence[str] = self._hvd.allgather_object(text, name="spot_training.texts")
        return texts

    def level(self, parts: Mapping[str, Any]) -> None:
        """Broadcast the state of rank 0, restored or initial, to all ranks."""
        for part in parts.values():
            if hasattr(part, "param_groups"):
                self._hvd.broadcast_optimizer_state(part, root_rank=0)
            elif hasattr(part, "parameters"):
                self._hvd.broadcast_parameters(part.state_dict(), root_rank=0)
