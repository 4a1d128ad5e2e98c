"""A small PyTorch training with everything that has a state, alone or as a rank, for the kill tests.

``python train_torch.py FOLDER``: checkpoints in FOLDER/checkpoints, a line for each step in
FOLDER/history-RANK, the final weights in FOLDER/final.pt. Arguments after it are ``name=value``.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from pathlib import Path
from typing import Any

import numpy
import torch
import torch._dynamo  # as the first optimizer does; before the forks
from torch import distributed
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

from spot_training import Interval
from spot_training.horovod import HorovodRanks
from spot_training.torch import EpochBatches, Loop

LENGTH, EPOCHS = 62, 4
WRITES = (torch, "save")
"""What writes the big file of a save."""


class Horovod:
    """What ``horovod.torch`` would do, over gloo: it cannot be installed beside today's PyTorch."""

    def rank(self) -> int:
        return distributed.get_rank()

    def size(self) -> int:
        return distributed.get_world_size()

    def allgather_object(self, one: Any, name: str | None = None) -> list[Any]:
        every = [None] * self.size()
        distributed.all_gather_object(every, one)
        return every

    def broadcast_parameters(self, state: dict[str, torch.Tensor], root_rank: int) -> None:
        for tensor in state.values():
            distributed.broadcast(tensor, root_rank)

    def broadcast_optimizer_state(self, optimizer: torch.optim.Optimizer, root_rank: int) -> None:
        given = [optimizer.state_dict()]
        distributed.broadcast_object_list(given, root_rank)
        optimizer.load_state_dict(given[0])

    def average(self, model: torch.nn.Module) -> None:
        """Average gradients, as its DistributedOptimizer does."""
        for one in model.parameters():
            distributed.all_reduce(one.grad)
            one.grad /= self.size()


def main(
    place: Path,
    *,
    batch: int = 4,
    pause: float = 0.01,
    workers: int = 0,
    loader: str = "ours",
    every: float = 0.03,
    asynchronous: bool = True,
    horovod: bool = False,
) -> None:
    """Train; ``pause`` seconds a step make room for a kill, ``every`` is the interval of saves at most."""
    rank, ranks = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    if ranks > 1:
        distributed.init_process_group("gloo")
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    for seed in (random.seed, numpy.random.seed, torch.manual_seed):
        seed(rank)
    numbers = torch.arange(LENGTH)
    data = TensorDataset(
        numbers, torch.sin(numbers[:, None] * torch.arange(1.0, 9.0)), torch.cos(numbers * 1.0)
    )
    if loader == "stateful":
        from torchdata.stateful_dataloader import StatefulDataLoader

        batches = StatefulDataLoader(data, batch_size=batch, shuffle=True, num_workers=workers)
    else:
        batches = DataLoader(data, batch_sampler=EpochBatches(LENGTH, batch, seed=5), num_workers=workers)
    model = torch.nn.Sequential(
        torch.nn.Linear(8, 32), torch.nn.BatchNorm1d(32), torch.nn.Dropout(0.2), torch.nn.Linear(32, 1)
    )
    if ranks > 1 and not horovod:
        model = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 100)
    scaler = torch.amp.GradScaler("cpu")
    double = Horovod()
    loop = Loop(
        place / "checkpoints",
        ranks=HorovodRanks(double) if horovod else None,
        interval=Interval(max_seconds=every),
        asynchronous=asynchronous,
        model=model,
        optimizer=optimizer,
        scheduler=scheduler,
        scaler=scaler,
    )
    (place / f"up-{rank}").touch()
    with (place / f"history-{rank}").open("a") as history:
        for epoch in loop.epochs(EPOCHS):
            for ids, inputs, wanted in loop.batches(batches):
                noise = float(numpy.random.normal() + random.gauss(0, 1)) * 0.01
                loss = torch.nn.functional.mse_loss(model(inputs + noise)[:, 0], wanted)
                optimizer.zero_grad()
                scaler.scale(loss).backward()
                if horovod:
                    double.average(model)
                scaler.step(optimizer)
                scaler.update()
                scheduler.step()
                time.sleep(pause)
                if not loop.repeating:
                    print(json.dumps([loop.step, epoch, ids.tolist()]), file=history, flush=True)
    if rank == 0:
        torch.save(getattr(model, "module", model).state_dict(), place / ".final.pt")
        (place / ".final.pt").rename(place / "final.pt")
    if distributed.is_initialized():
        distributed.destroy_process_group()  # otherwise gloo's threads race with the end of the interpreter


if __name__ == "__main__":
    main(
        Path(sys.argv[1]),
        **{name: json.loads(value) for name, value in (one.split("=") for one in sys.argv[2:])},
    )
