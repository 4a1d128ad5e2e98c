"""A small training on several nodes, for the plays of losses.

``python train_nodes.py FOLDER``: checkpoints in FOLDER/checkpoints, a line for each step in FOLDER/steps,
the final weights in FOLDER/final.pt. Arguments after it are ``name=value``. Without
``$SPOT_TRAINING_NODES`` it is one machine, or a torchrun's plain world.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

from spot_training import Interval
from spot_training.torch import EpochBatches, Loop, init

LENGTH, BATCH, SEED = 200, 24, 5


class Momentum:
    """SGD with momentum and gradients averaged over the ranks.

    For plays whose processes share two cores: PyTorch's optimizers and DDP import its compiler, which takes
    as long as all the rest.
    """

    def __init__(self, model: torch.nn.Module, ranks: int) -> None:
        self._parameters, self._ranks = list(model.parameters()), ranks
        self._momenta = [torch.zeros_like(parameter) for parameter in self._parameters]

    def step(self) -> None:
        """Average the gradients over the ranks and take a step."""
        with torch.no_grad():
            for parameter, momentum in zip(self._parameters, self._momenta, strict=True):
                distributed.all_reduce(parameter.grad)
                momentum.mul_(0.9).add_(parameter.grad / self._ranks)  # type: ignore[operator]
                parameter.sub_(momentum, alpha=0.01)

    def zero_grad(self) -> None:
        """Forget the gradients."""
        for parameter in self._parameters:
            parameter.grad = None

    def state_dict(self) -> dict[str, Any]:
        """Return the state."""
        return {"momenta": self._momenta}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load a state."""
        for momentum, saved in zip(self._momenta, state["momenta"], strict=True):
            momentum.copy_(saved)


def main(
    folder: Path,
    *,
    epochs: int = 1000,
    pause: float = 0.02,
    every: float = 1.0,
    size: int = 5,
    workers: int = 0,
    ddp: bool = True,
    stops: bool = False,
) -> None:
    """Train; ``pause`` seconds a step, ``every`` is the interval of saves, ``size`` that of a part.

    With ``stops`` it ends after the epoch in which FOLDER/stop appears.
    """
    world = init(folder=folder / "checkpoints", backend="gloo")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    numbers = torch.arange(LENGTH, dtype=torch.float64)
    data = TensorDataset(
        torch.arange(LENGTH), torch.sin(numbers[:, None] * torch.arange(1.0, 9.0)), torch.cos(numbers)
    )
    batches = EpochBatches(LENGTH, BATCH, seed=SEED, per_rank=False)
    loader = DataLoader(data, batch_sampler=batches, num_workers=workers)
    layers = torch.nn.Linear(8, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1)
    model: torch.nn.Module = torch.nn.Sequential(*layers).double()
    optimizer: Any = Momentum(model, world.size)
    if ddp:
        model = DistributedDataParallel(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    loop = Loop(
        folder / "checkpoints",
        interval=Interval(max_seconds=every),
        settings={},
        model=model,
        optimizer=optimizer,
    )
    node = os.environ.get("SPOT_TRAINING_NODE", f"rank-{world.rank}")
    (folder / "steps").mkdir(exist_ok=True)
    with (folder / "steps" / f"{node}-{os.environ.get('LOCAL_RANK', '0')}").open("a") as steps:
        for epoch in loop.epochs(epochs):
            for batch in loop.batches(loader):
                samples = list[int]()
                for (ids, inputs, wanted), weight in loop.parts(batch, size, model):
                    (weight * torch.nn.functional.mse_loss(model(inputs)[:, 0], wanted)).backward()
                    samples += ids.tolist() if weight else []
                optimizer.step()
                optimizer.zero_grad()
                time.sleep(pause)
                if not loop.repeating:
                    line = (time.time(), world.number, world.rank, world.size, loop.step, epoch, samples)
                    print(json.dumps(line), file=steps, flush=True)
            if stops:
                is_last = torch.tensor(int((folder / "stop").exists()))
                distributed.all_reduce(is_last, distributed.ReduceOp.MAX)
                if is_last:
                    loop.stop()
    if world.rank == 0:
        torch.save(getattr(model, "module", model).state_dict(), folder / ".final.pt")
        (folder / ".final.pt").rename(folder / "final.pt")


if __name__ == "__main__":
    main(
        Path(sys.argv[1]),
        **{key: json.loads(value) for key, value in (one.split("=") for one in sys.argv[2:])},
    )
