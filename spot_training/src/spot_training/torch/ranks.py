"""The ranks of ``torch.distributed``: agreement on flags and barriers."""

from __future__ import annotations

import atexit
import contextlib
import os
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import distributed

from spot_training.errors import SpotTrainingError


class TorchRanks:
    """``Ranks`` of ``torch.distributed``; a single rank if it is not initialised.

    Uses two separate gloo groups, for the flags of the training thread and for the saving thread; neither
    uses the GPUs. All ranks must create it at the same point of the script. Both groups are destroyed when
    the script ends: a gloo thread that outlives the interpreter may abort a finished process
    (pytorch/pytorch#179291). The default group belongs to the script.
    """

    def __init__(self) -> None:
        self._together = distributed.is_available() and distributed.is_initialized()
        if not self._together and int(os.environ.get("WORLD_SIZE", "1")) > 1:
            raise SpotTrainingError(
                f"WORLD_SIZE is {os.environ['WORLD_SIZE']}, but torch.distributed is not initialised:"
                " call init_process_group() first"
            )
        self.rank: int = distributed.get_rank() if self._together else 0
        self.size: int = distributed.get_world_size() if self._together else 1
        if self._together:
            self._flags = distributed.new_group(backend="gloo")
            self._saves = distributed.new_group(backend="gloo")
            atexit.register(self.close)

    def close(self) -> None:
        """Destroy both groups; nothing is left to do if the script destroyed all groups."""
        if self._together and distributed.is_initialized():
            for group in (self._flags, self._saves):
                with contextlib.suppress(ValueError):  # the script destroyed all groups and initialised again
                    distributed.destroy_process_group(group)
        atexit.unregister(self.close)

    def any(self, *flags: bool) -> list[bool]:
        """Return for each flag whether it is true on any rank; the same result on all ranks."""
        if not self._together:
            return list(flags)
        raised = torch.tensor(flags, dtype=torch.int32)
        distributed.all_reduce(raised, distributed.ReduceOp.MAX, group=self._flags)
        return [bool(value) for value in raised.tolist()]

    def gather(self, text: str) -> Sequence[str]:
        """Wait for all ranks; return their texts, by rank. Not thread-safe."""
        if not self._together:
            return [text]
        texts: list[str] = [""] * self.size
        distributed.all_gather_object(texts, text, group=self._saves)
        return texts

    def level(self, parts: Mapping[str, Any]) -> None:
        """Do nothing: all ranks read the same checkpoint, and DDP broadcasts the initial weights."""
