"""A stream in the process that reads it: a worker of the loader, or the training's.

With each batch it sends its position, so that the training's process knows what the batches that were trained
on have consumed, whatever has been fetched ahead.
"""

from __future__ import annotations

import copy
import inspect
import random
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from torch.utils.data import IterableDataset, _utils, get_worker_info

from spot_training.torch import state
from spot_training.torch.loaders.samples import mark
from spot_training.torch.loaders.workers import BatchRandomness

_PRIVATE: Final = ("dataset", "state_dict", "load_state_dict")


class ShardPosition(NamedTuple):
    """The position of a shard, one worker's part of the stream, after one of its batches."""

    shard: int = 0
    samples: int = 0
    """Since the epoch's start, earlier processes included."""
    digest: int = 0
    """Of these samples; 0 if the stream has a state."""
    states: Any = None
    """Of the dataset and of its iterator; None if it has no state."""
    is_as_before: bool = True
    """Whether a stream that was read again has yielded the same samples."""


@dataclass(frozen=True)
class StreamStart:
    """Where the iterations of an epoch start in this process."""

    epoch: int = -1
    first: int = 0
    """The shard that the next batch comes from."""
    shards: Mapping[int, ShardPosition] = field(default_factory=dict)
    end: Any = None
    """The states at the end of the epoch before, of a stream that the training's process reads."""
    batches: int = 0
    """Of the epoch, done; of a stream that divides batches among workers itself."""


class ShardStream(IterableDataset[Any]):
    """A loader's dataset with a position; random numbers follow from seed, epoch, rank, shard and sample."""

    def __init__(self, dataset: Any, randomness: BatchRandomness, rank: int, batch_size: int | None) -> None:
        self.dataset, self._rank = dataset, rank
        """The script's dataset."""
        self.randomness = randomness
        """The random numbers of its samples; ``epoch`` is seen by all workers."""
        self._batch_size = batch_size or 1
        self.start = StreamStart()
        self.counts_itself = _counts_itself(dataset)
        self.has_state = not self.counts_itself and _has_state(dataset)
        """Whether the dataset itself has a state."""
        self._iterator: Any = None
        self._position = ShardPosition()
        self._worker: int | None = None

    def __getattr__(self, name: str) -> Any:
        if name in _PRIVATE:
            raise AttributeError(name)
        return getattr(self.dataset, name)

    def __len__(self) -> int:
        return len(self.dataset)

    def position(self) -> ShardPosition:
        """Return the position after the samples that have been read."""
        states = self.states()
        return self._position._replace(states=states, digest=0 if states else self._position.digest)

    def states(self) -> Any:
        """Return copies of the states of the dataset and of its iterator; None if it has none."""
        has_both = (self.has_state, not self.counts_itself and _has_state(self._iterator))
        pairs = zip((self.dataset, self._iterator), has_both, strict=True)
        states = [state.copy_to_cpu(source.state_dict()) if has else None for source, has in pairs]
        return states if any(has_both) else None

    def __iter__(self) -> Iterator[Any]:
        worker = get_worker_info()
        if worker is not None and self._worker is None:  # a worker that stays sees the number of the shard
            self._worker = worker.id
        number, workers = self._worker or 0, worker.num_workers if worker else 1
        epoch = int(self.randomness.epoch[0])
        start = self.start if self.start.epoch == epoch else StreamStart(end=self.start.end)
        shard = number if self.counts_itself else (number + start.first) % workers
        before = start.shards.get(shard, ShardPosition(shard))
        self._position = ShardPosition(shard, before.samples if before.states else 0)
        if worker is not None and shard != worker.id:
            _set_worker(worker, shard)
        self._set_randomness(epoch, start, workers)
        iterator = self._open(epoch, before.states or (None if worker else start.end))
        while True:
            self._set_randomness(epoch, start, workers)
            try:
                sample = next(iterator)
            except StopIteration:
                return
            shard, samples, digest, _, is_as_before = self._position
            digest = 0 if before.states else zlib.crc32(mark(sample), digest)
            if samples + 1 == before.samples and not before.states:
                is_as_before = digest == before.digest
            self._position = ShardPosition(shard, samples + 1, digest, None, is_as_before)
            if samples >= (0 if before.states else before.samples):
                yield sample

    def _open(self, epoch: int, states: Any) -> Any:
        """Return an iterator over the dataset, restored if it has a state."""
        if hasattr(self.dataset, "set_epoch"):
            self.dataset.set_epoch(epoch)
        _set_epoch(self.dataset, epoch, self.randomness.seed)
        of_dataset, of_iterator = states or (None, None)
        if of_dataset is not None:
            self.dataset.load_state_dict(of_dataset)
        iterator = self._iterator = iter(self.dataset)
        if of_iterator is not None:
            iterator.load_state_dict(of_iterator)
        return iterator

    def _set_randomness(self, epoch: int, start: StreamStart, workers: int) -> None:
        shard, samples = self._position.shard, self._position.samples
        if self.counts_itself:  # batches go to workers in turn, from the first, also in a resumed epoch
            batch, samples = divmod(samples, self._batch_size)
            shard += start.batches + batch * workers
        self.randomness.set(f"{self._rank} {shard} {samples}")


class TaggedCollate:
    """A ``collate_fn`` that returns the stream's position with the batch."""

    def __init__(self, stream: ShardStream, collate: Callable[[Any], Any]) -> None:
        self._stream, self._collate = stream, collate

    def __call__(self, samples: Any) -> tuple[ShardPosition, Any]:
        """Return position and batch."""
        return self._stream.position(), self._collate(samples)


def _has_state(source: Any) -> bool:
    return hasattr(source, "load_state_dict") and hasattr(source, "state_dict") and not _required(source)


def _counts_itself(dataset: Any) -> bool:
    """Return whether its state needs the number of samples: MosaicML's ``StreamingDataset``."""
    return hasattr(dataset, "load_state_dict") and _required(dataset) == ["num_samples", "from_beginning"]


def takes_other_arguments(dataset: Any) -> bool:
    """Return whether ``state_dict`` of a dataset needs arguments that are not known here."""
    return hasattr(dataset, "state_dict") and bool(_required(dataset)) and not _counts_itself(dataset)


def _required(source: Any) -> list[str]:
    """Return the names of the arguments that ``state_dict`` of a dataset requires."""
    if not hasattr(source, "state_dict"):
        return []
    return [
        parameter.name
        for parameter in inspect.signature(source.state_dict).parameters.values()
        if parameter.default is parameter.empty
        and parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]


def _set_worker(worker: Any, shard: int) -> None:
    """Let the dataset of this worker see the number of another one, whose part of the stream it continues.

    A loader takes its first batch from worker 0; that of a resumed epoch may be another one's.
    """
    changed = copy.copy(worker)
    object.__setattr__(changed, "id", shard)
    _utils.worker._worker_info = changed


class _Seed(int):
    """A seed of an epoch; not the script's."""


def _set_epoch(dataset: Any, epoch: int, seed: int) -> None:
    """Let the order of WebDataset's pipeline follow from ``epoch`` and ``seed``, not from the clock.

    Its stages are recognised by their form (webdataset 1.0); any other dataset stays as it is, and so does a
    seed that the script has passed to a stage. ``WebDataset`` draws one itself if it gets none, and passes it
    to its shuffle of shards: that one is replaced, and so is a generator, whose state is not saved.
    """
    drawn = getattr(dataset, "seed", None)
    for number, stage in enumerate(_stages(dataset)):
        if hasattr(stage, "epoch"):  # detshuffle, ResampledShards: they add 1 when they begin
            stage.epoch = epoch - 1
        if hasattr(stage, "deterministic"):
            stage.deterministic = True
        if drawn is not None and getattr(stage, "seed", None) == drawn:
            stage.seed = seed
        if _function(stage) == "_shuffle" and len(stage.args) < 3:  # size, initial size, generator, seed
            before = stage.kw.get("seed", drawn)
            if before == drawn or isinstance(before, _Seed):
                stage.kw.pop("rng", None)
                stage.kw["seed"] = _Seed(random.Random(f"{seed} {epoch} {number}").getrandbits(63))


def order_problem(dataset: Any) -> str:
    """Return why a pipeline's order cannot be resumed; empty if it can."""
    line = "resampled draws shards from the system's random numbers; use ResampledShards"
    return line if any(_function(stage) == "resampled_" for stage in _stages(dataset)) else ""


def _stages(dataset: Any) -> Iterator[Any]:
    pipeline = getattr(dataset, "pipeline", None)
    yield from pipeline if isinstance(pipeline, list) else ()


def _function(stage: Any) -> str:
    return getattr(getattr(stage, "f", None), "__name__", "")
