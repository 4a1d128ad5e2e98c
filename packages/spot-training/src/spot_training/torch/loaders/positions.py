"""The position of a data loader, to resume in the middle of an epoch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch.utils.data import DataLoader

from spot_training.errors import MismatchError
from spot_training.storage.manifest import Checkpoint
from spot_training.torch.loaders.workers import BatchRandomness


class LoaderPosition:
    """The position of a data loader; by default one that counts no samples."""

    starts_epochs = True
    """Whether an epoch can start in another process: its order does not depend on the loader's state."""
    loader: DataLoader[Any]
    randomness: BatchRandomness | None = None
    """The random numbers of the loader's workers, if this sets their epoch."""

    @property
    def steps(self) -> int | None:
        """Steps of an epoch, if the loader or its dataset has a length."""
        try:
            return len(self.loader)
        except TypeError:
            return None

    def restore(self, saved: Checkpoint, loader_state: Any) -> None:
        """Set the position from a checkpoint; raises ``MismatchError`` if it is of other data in an epoch."""
        before, now = saved.meta.get("data"), self.identity()["data"]
        if before not in (None, now):
            raise MismatchError(
                f"{saved.path} was saved with other data: {before}, not {now}; use the same data, or another"
                " directory"
            )

    def begin(self, epoch: int, samples: int) -> None:
        """Start the next iteration at this position."""
        if self.randomness is not None:
            self.randomness.epoch[0] = epoch

    def iterate(self, accumulate: int) -> Iterator[Any]:
        """Return an iterator over the rest of the epoch; the loader's workers start in this call.

        ``accumulate``: the batches of an optimizer step; ``remaining`` is known so many before the end.
        """
        return iter(self.loader)

    def after(self, samples: int) -> int:
        """Return the number of samples after one more step."""
        return 0

    def remaining(self, batch: int, samples: int) -> int | None:
        """Return the steps of the epoch after ``batch`` steps and ``samples`` samples; None if unknown."""
        return None if (steps := self.steps) is None else steps - batch

    def following(self, epoch: int, samples: int) -> list[int] | None:
        """Return the indices of the step after ``samples``; None if they are not known."""
        return None

    def identity(self) -> dict[str, Any]:
        """Return the values (JSON) that must not change for a position to stay valid."""
        raise NotImplementedError

    def state(self) -> Any:
        """Return the state to save for this rank."""
        return None
