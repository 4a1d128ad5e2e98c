"""The processes that train together: what they agree on, and where they wait for each other."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import distributed

from spot_training.errors import SpotTrainingError


class TorchRanks:
    """This process among those of ``torch.distributed``, as ``Ranks``; alone where there are no others.

    Two groups of its own, over gloo: the training's thread exchanges flags, the saving one waits for the
    others, and neither touches the GPUs' queues. All ranks create it at the same place of the script.
    """

    def __init__(self) -> None:
        self._together = distributed.is_available() and distributed.is_initialized()
        if not self._together and int(os.environ.get("WORLD_SIZE", "1")) > 1:
            raise SpotTrainingError(
                f"WORLD_SIZE is {os.environ['WORLD_SIZE']}, but torch.distributed is not initialised:"
                " call init_process_group() before"
            )
        self.rank: int = distributed.get_rank() if self._together else 0
        self.size: int = distributed.get_world_size() if self._together else 1
        if self._together:
            self._flags = distributed.new_group(backend="gloo")
            self._saves = distributed.new_group(backend="gloo")

    def any(self, *flags: bool) -> list[bool]:
        """Return for each flag whether a rank has raised it: the same answer for all, at the same step."""
        if not self._together:
            return list(flags)
        raised = torch.tensor(flags, dtype=torch.int32)
        distributed.all_reduce(raised, distributed.ReduceOp.MAX, group=self._flags)
        return [bool(one) for one in raised.tolist()]

    def gather(self, text: str) -> Sequence[str]:
        """Wait for all ranks; return each one's text, by rank. One thread at a time."""
        if not self._together:
            return [text]
        texts: list[str] = [""] * self.size
        distributed.all_gather_object(texts, text, group=self._saves)
        return texts

    def level(self, parts: Mapping[str, Any]) -> None:
        """Nothing to do: all ranks have read one checkpoint; what they begin with, DDP has levelled."""
