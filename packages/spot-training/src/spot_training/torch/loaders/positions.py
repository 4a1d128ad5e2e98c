"""The position of a data loader, to resume in the middle of an epoch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from torch.utils.data import DataLoader

from spot_training.errors import MismatchError
from spot_training.storage.manifest import Checkpoint


class LoaderPosition(Protocol):
    """The position of a data loader."""

    starts_epochs: bool
    """Whether an epoch can start in another process: its order does not depend on the loader's state."""

    @property
    def steps(self) -> int | None:
        """Steps of an epoch, if known."""

    def restore(self, saved: Checkpoint, loader_state: Any) -> None:
        """Set the position from a checkpoint; raises ``MismatchError`` if it is of other data."""

    def begin(self, epoch: int, samples: int) -> None:
        """Start the next iteration at this position."""

    def iterate(self, loader: DataLoader[Any], accumulate: int) -> Iterator[Any]:
        """Return an iterator over the rest of the epoch; the loader's workers start in this call.

        ``accumulate``: the batches of an optimizer step; ``remaining`` is known so many before the end.
        """

    def after(self, samples: int) -> int:
        """Return the number of samples after one more step."""

    def remaining(self, batch: int, samples: int) -> int | None:
        """Return the steps of the epoch after ``batch`` steps and ``samples`` samples; None if unknown."""

    def identity(self) -> dict[str, Any]:
        """Return the values (JSON) that must not change for a position to stay valid."""

    def state(self) -> Any:
        """Return the state to save for this rank."""


def refuse_other(saved: Checkpoint, now: dict[str, Any]) -> None:
    """Raise ``MismatchError`` if a checkpoint inside an epoch has another ``LoaderPosition.identity``."""
    if saved.meta.get("data") not in (None, now["data"]):
        raise MismatchError(
            f"{saved.path} was saved with other data: {saved.meta.get('data')}, not "
            f"{now['data']}; use the same data, or another directory"
        )
