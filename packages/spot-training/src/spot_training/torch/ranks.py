"""The ranks of ``torch.distributed``: agreement on flags and barriers."""

from __future__ import annotations

import atexit
import contextlib
import os
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

import torch
from torch import distributed

from spot_training.errors import SpotTrainingError
from spot_training.torch import nodes

_STOP: Final = "spot_training/stop"


class TorchRanks:
    """``Ranks`` of ``torch.distributed``; a single rank if it is not initialised.

    Uses two gloo groups, for the flags of the training thread and for the saving thread. All ranks create it
    at the same point of the script. Both are destroyed when the script ends: a gloo thread that outlives the
    interpreter may abort a finished process (pytorch/pytorch#179291).
    """

    def __init__(self, *, goes_on: bool = False) -> None:
        """``goes_on``: the caller goes on in another world of nodes (`spot_training.torch.init`)."""
        self.world = nodes.current()
        if self.world.has_nodes and not goes_on:
            raise SpotTrainingError("init() with nodes works only with Loop; here use one machine")
        self._together = distributed.is_available() and distributed.is_initialized()
        if not self._together and int(os.environ.get("WORLD_SIZE", "1")) > 1:
            raise SpotTrainingError(
                f"WORLD_SIZE is {os.environ['WORLD_SIZE']}, but torch.distributed is not initialised:"
                " call init_process_group() first"
            )
        self.rank: int = distributed.get_rank() if self._together else 0
        self.size: int = distributed.get_world_size() if self._together else 1
        self._store, self._next_check_at = None, 0.0
        if self._together:
            self._flags = distributed.new_group(backend="gloo")
            self._saves = distributed.new_group(backend="gloo")
            self._store = distributed.distributed_c10d._get_default_store()
            atexit.register(self.close)

    def close(self) -> None:
        """Destroy both groups; nothing is left to do if the script destroyed all groups."""
        if self._together and distributed.is_initialized():
            for group in (self._flags, self._saves):
                with contextlib.suppress(ValueError):  # the script destroyed all groups and initialised again
                    distributed.destroy_process_group(group)
        atexit.unregister(self.close)

    def request_stop(self) -> None:
        """Let ``is_stop_requested`` return True on all ranks; may be called in any thread."""
        if self._store is not None:
            with contextlib.suppress(Exception):  # the rank that has the store may have ended
                self._store.set(_STOP, b"1")

    def is_stop_requested(self) -> bool:
        """Return whether a rank has requested to stop; asks the ranks' store, at most once a second."""
        if self._store is None or time.monotonic() < self._next_check_at:
            return False
        self._next_check_at = time.monotonic() + 1.0
        try:
            return bool(self._store.check([_STOP]))
        except Exception:  # the rank that has the store may have ended
            return False

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

    def exchange(self, value: Any) -> list[Any]:
        """Return the values of all ranks, by rank; for the training thread, as ``any``."""
        if not self._together:
            return [value]
        values: list[Any] = [None] * self.size
        distributed.all_gather_object(values, value, group=self._flags)
        return values

    def level(self, parts: Mapping[str, Any]) -> None:
        """Do nothing: all ranks read the same checkpoint, and DDP broadcasts the initial weights."""
