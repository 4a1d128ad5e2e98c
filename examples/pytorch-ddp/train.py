"""Fault-tolerant training with PyTorch DDP, on generated points: ``torchrun --nproc-per-node 2 train.py``."""

from __future__ import annotations

import argparse
import os
import random
import time
from pathlib import Path

import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

from spot_training.torch import EpochBatches, Loop

POINTS = 4096


def points() -> TensorDataset:
    """Return points in a square, labelled by whether they are inside a circle."""
    generator = torch.Generator().manual_seed(7)
    coordinates = 2 * torch.rand(POINTS, 2, generator=generator) - 1
    return TensorDataset(coordinates, ((coordinates**2).sum(1) < 0.5).float())


def main() -> None:
    """Train, resuming after an interruption, and write the weights to ``$GPU_SPOT_ARTIFACTS``."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--pause", type=float, default=0.0, help="extra seconds per step")
    arguments = parser.parse_args()
    on_gpu = torch.cuda.is_available()
    distributed.init_process_group("nccl" if on_gpu else "gloo")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    random.seed(1)
    torch.manual_seed(1)
    model = torch.nn.Sequential(
        torch.nn.Linear(2, 64), torch.nn.Tanh(), torch.nn.Dropout(0.1), torch.nn.Linear(64, 1)
    )
    model = DistributedDataParallel(model.to(device))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    loader = DataLoader(points(), batch_sampler=EpochBatches(POINTS, batch_size=32, seed=1))
    loop = Loop(model=model, optimizer=optimizer)
    for epoch in loop.epochs(arguments.epochs):
        loss = torch.zeros(())
        for coordinates, inside in loop.batches(loader):
            loss = torch.nn.functional.binary_cross_entropy_with_logits(
                model(coordinates.to(device))[:, 0], inside.to(device)
            )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(arguments.pause)
        if distributed.get_rank() == 0:
            print(f"epoch {epoch} step {loop.step} loss {loss.item():.4f}", flush=True)
    if distributed.get_rank() == 0:
        results = Path(os.environ.get("GPU_SPOT_ARTIFACTS", "."))
        torch.save(model.module.state_dict(), results / "model.pt")
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
