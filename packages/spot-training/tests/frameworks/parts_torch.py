"""Gradients of a step at several numbers of ranks, and learning rates: for ``loop_torch.py``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from spot_training.torch.data import EpochBatches, parts_of
from spot_training.torch.optimization import SCALE_RULES, scale_learning_rates

LENGTH, BATCH = 50, 12


class Model(torch.nn.Linear):
    """Counts the parts after which DDP would not exchange gradients."""

    unsynced = 0

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """As ``DistributedDataParallel``'s."""
        self.unsynced += 1
        yield


def new_model() -> Model:
    """Return the same model each time."""
    torch.manual_seed(3)
    return Model(4, 1).double()


def inputs_of(indices: list[int]) -> dict[str, Any]:
    """Return a collated batch."""
    numbers = torch.tensor(indices, dtype=torch.float64)
    return {
        "inputs": torch.sin(numbers[:, None] * torch.arange(1.0, 5.0)),
        "target": [torch.cos(numbers)],
        "text": [str(index) for index in indices],
    }


def gradients(ranks: int, size: int | None) -> tuple[list[torch.Tensor], list[list[int]]]:
    """Return the gradients of an epoch's steps, as DDP averages them, and each step's samples."""
    steps = len(EpochBatches(LENGTH, BATCH, per_rank=False))
    sums, samples = [torch.zeros(4, dtype=torch.float64) for _ in range(steps)], [[] for _ in range(steps)]
    for rank in range(ranks):
        batches, position = EpochBatches(LENGTH, BATCH, seed=2, per_rank=False), 0
        batches.share(rank, ranks)
        for step, indices in enumerate(batches):
            model = new_model()
            count, mine = batches.part_of(position)
            parts = 0
            for part, weight in parts_of(
                inputs_of(indices), size, model, samples=count, mine=mine, ranks=ranks
            ):
                [target] = part["target"]
                assert len(part["inputs"]) == len(target) == len(part["text"]) <= (size or LENGTH)
                (weight * (model(part["inputs"])[:, 0] - target).pow(2).mean()).backward()
                samples[step] += map(int, part["text"]) if weight else []
                parts += 1
            assert model.unsynced == parts - 1
            sums[step] += model.weight.grad[0] / ranks  # type: ignore[index]
            position = batches.after(position)
        assert position == LENGTH
        assert batches.steps_after(0) == steps
    return sums, samples


def rates(rule: str, before: int, now: int) -> list[float]:
    """Return the learning rates of an optimizer and its scheduler, and that after a step of both."""
    optimizer = torch.optim.SGD(new_model().parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    scale_learning_rates(
        {"optimizer": optimizer, "scheduler": scheduler}, (now / before) ** SCALE_RULES[rule]
    )
    first = [optimizer.param_groups[0]["lr"], *scheduler.base_lrs]
    optimizer.step()
    scheduler.step()
    return [*first, optimizer.param_groups[0]["lr"]]


def results() -> dict[str, Any]:
    """Return the largest difference of a gradient, whether samples are equal, and learning rates."""
    wanted, samples = gradients(1, None)
    difference, same = 0.0, sorted(index for step in samples for index in step) == list(range(LENGTH))
    for ranks in (1, 2, 3, 5, 13):
        for size in (None, 1, 4):
            sums, other = gradients(ranks, size)
            difference = max(
                difference, *(float((a - b).abs().max()) for a, b in zip(wanted, sums, strict=True))
            )
            same = same and other == samples
    return {
        "difference": difference,
        "same": same,
        "linear": rates("linear", 4, 2),
        "sqrt": rates("sqrt", 4, 1),
    }
