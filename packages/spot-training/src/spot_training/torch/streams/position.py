"""The position of a loader over an ``IterableDataset``, whose end is known one step before it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from torch.utils.data import DataLoader

from spot_training.errors import SpotTrainingError, say
from spot_training.storage.manifest import Checkpoint
from spot_training.torch import state
from spot_training.torch.loaders.positions import LoaderPosition
from spot_training.torch.loaders.workers import BatchRandomness
from spot_training.torch.streams import source
from spot_training.torch.streams.source import ShardPosition, ShardStream, StreamStart, TaggedCollate

_HISTORY: Final = 4
"""Batches whose positions are stored: a caller may have requested some that it has not trained on."""
_printed: Final[set[str]] = set()
"""What this process has printed about its streams."""


class _Consumed(NamedTuple):
    """What some batches of an epoch have consumed."""

    batches: int = 0
    next: int = 0
    """The shard whose turn is next."""
    shards: Mapping[int, ShardPosition] = MappingProxyType({})
    end: Any = None
    """Before the first batch: the states at the end of the epoch before."""


class Lookahead:
    """An iterator over batches that fetches ``count`` more than it has returned.

    It restores this process's random numbers: a loader without workers draws samples in it, and others draw
    one when they start.
    """

    def __init__(self, batches: Iterator[Any], count: int) -> None:
        self._batches, self._count, self._is_over = batches, count, False
        self._queue: deque[Any] = deque()

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        self._fill()
        if not self._queue:
            raise StopIteration
        return self._queue.popleft()

    @property
    def is_empty(self) -> bool:
        """Whether all batches have been returned."""
        return self._is_over and not self._queue

    def remaining(self) -> int | None:
        """Return the number of batches to come; None if there are more than it fetches ahead."""
        self._fill()
        return len(self._queue) if self._is_over else None

    def _fill(self) -> None:
        while not self._is_over and len(self._queue) < self._count:
            before = state.randomness()
            try:
                self._queue.append(next(self._batches))
            except StopIteration:
                self._is_over = True
            finally:
                state.set_randomness(before)


class StreamPosition(LoaderPosition):
    """What the batches that were trained on have consumed of each shard of a stream.

    A dataset with ``state_dict`` and ``load_state_dict`` continues from its state, MosaicML's from the number
    of samples; any other is read again from the epoch's start, without collating or sending what was done.
    """

    def __init__(self, loader: DataLoader[Any], rank: int, ranks: int, seed: int | None = None) -> None:
        """``loader``: its dataset and ``collate_fn`` are wrapped, once. ``seed``: default: the loader's."""
        self.loader, self._rank, self._ranks = loader, rank, ranks
        self._stream = _wrapped(loader, rank, seed)
        self._saved: Any = None
        self._epoch = 0
        self._consumed = deque([_Consumed()], _HISTORY)
        """After each of the last batches that were returned, the newest last."""
        self._fetched: Lookahead | None = None
        if limit := source.order_problem(self._stream.dataset):
            self._say_once(f"not resumed: the order of samples in an epoch ({limit})")

    @property
    def outlasts_epochs(self) -> bool:
        """Whether an epoch begins where the one before ended: a stream with a state in this process."""
        return self._stream.has_state and not self.loader.num_workers

    def restore(self, saved: Checkpoint, loader_state: Any) -> None:
        """See ``LoaderPosition``."""
        super().restore(saved, loader_state)
        self._saved = loader_state

    def begin(self, epoch: int, samples: int) -> None:
        """Start the next iteration at the restored position, if it is in this epoch."""
        saved, self._saved = self._saved or {}, None
        self._epoch, is_inside = epoch, saved.get("epoch") == epoch
        library = saved.get("library")
        if library is not None:  # it counts from where this process begins
            rest = {} if is_inside else {"epoch": library["epoch"] + 1, "sample_in_epoch": 0}
            self._stream.dataset.load_state_dict({**library, **rest})
        positions = saved["shards"] if is_inside and library is None else ()
        shards = {values[0]: ShardPosition(*values) for values in positions}
        end = saved["end"] if "end" in saved else self._states_between_epochs()
        begin = _Consumed(saved["batches"], saved["next"], shards, end) if is_inside else _Consumed(end=end)
        self._consumed = deque([begin], _HISTORY)
        self._stream.randomness.epoch[0] = epoch
        begin_at = (epoch if is_inside else -1, begin.next, dict(begin.shards))
        self._stream.start = StreamStart(*begin_at, saved.get("end"), begin.batches)

    def iterate(self, accumulate: int) -> Iterator[Any]:
        """See ``LoaderPosition``."""
        fetched = self._fetched = Lookahead(iter(self.loader), accumulate + 1)
        return self._untagged(fetched)

    def _untagged(self, fetched: Lookahead) -> Iterator[Any]:
        workers = max(1, self.loader.num_workers)
        for position, batch in fetched:
            self._say_limits(position)
            batches, _, shards, _ = self._consumed[-1]
            following = (position.shard + 1) % workers
            self._consumed.append(_Consumed(batches + 1, following, {**shards, position.shard: position}))
            yield batch

    def _say_limits(self, position: ShardPosition) -> None:
        if position.states is None and not self._stream.counts_itself:
            self._say_once(
                f"a {type(self._stream.dataset).__name__} has no state_dict: a resumed epoch reads it again"
                " from its start, and each sample is used once only if it yields the same again"
            )
        if not position.is_as_before:
            self._say_once("not resumed: the order of samples in this epoch; the stream yields others now")

    def _say_once(self, line: str) -> None:
        if self._rank == 0 and line not in _printed:
            _printed.add(line)
            say(line)

    def remaining(self, batch: int, samples: int) -> int | None:
        """Return the steps to the end of the epoch; None if there are more than are fetched ahead."""
        return None if self._fetched is None else self._fetched.remaining()

    def identity(self) -> dict[str, Any]:
        """Return the values that must not change while a position in an epoch is valid."""
        loader, kind = self.loader, type(self._stream.dataset).__name__
        data = {"stream": kind, "workers": loader.num_workers, "batch_size": loader.batch_size}
        return {"data": {**data, "ranks": self._ranks}}

    def _states_between_epochs(self) -> Any:
        """Return the dataset's state alone, which its next iterator starts from; None in workers."""
        states = None if self.loader.num_workers else self._stream.states()
        return None if states is None or states[0] is None else [states[0], None]

    @property
    def batches(self) -> int:
        """The batches of this epoch that were returned, those of earlier processes included."""
        return self._consumed[-1].batches

    def state(self, before: int = 0) -> Any:
        """Return the position ``before`` batches before the last one that was returned, as plain values."""
        stream, fetched = self._stream, self._fetched
        is_over = fetched is not None and fetched.is_empty and not before
        batches, following, shards, end = self._consumed[-1 - before]
        result = {
            "epoch": self._epoch,
            "next": following,
            "batches": batches,
            "shards": [list(position) for position in shards.values()],
            "end": self._states_between_epochs() if is_over else end,
            "library": None,
        }
        if stream.counts_itself and fetched is not None:
            samples = sum(position.samples for position in shards.values())
            result["library"] = stream.dataset.state_dict(samples * self._ranks, False)
        return result


def _wrapped(loader: DataLoader[Any], rank: int, seed: int | None) -> ShardStream:
    """Return the stream of a loader, which is put in place of its dataset."""
    if isinstance(loader.dataset, ShardStream):
        return loader.dataset
    if seed is None:
        seed = 0 if loader.generator is None else loader.generator.initial_seed()
    stream = ShardStream(loader.dataset, BatchRandomness(seed), rank, loader.batch_size)
    if source.takes_other_arguments(loader.dataset):
        raise SpotTrainingError(
            f"state_dict of a {type(loader.dataset).__name__} needs arguments; use one without, "
            "or MosaicML's (num_samples, from_beginning)"
        )
    if stream.has_state and loader.num_workers and loader.persistent_workers:
        raise SpotTrainingError(
            f"a {type(loader.dataset).__name__} with a state in persistent workers cannot be "
            "resumed; set persistent_workers=False"
        )
    # DataLoader refuses an assignment after its construction, but reads the attribute at each iteration.
    object.__setattr__(loader, "dataset", stream)
    loader.collate_fn = TaggedCollate(stream, loader.collate_fn)
    return stream
