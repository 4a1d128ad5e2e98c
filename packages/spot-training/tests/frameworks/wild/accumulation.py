"""Gradient accumulation, an average of weights, a scheduler by step, means in local variables."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from torch.utils.data import DataLoader

from frameworks.wild import common
from spot_training.torch import EpochBatches, Loop

EPOCHS, ACCUMULATE = 4, 3


def main(folder: Path) -> None:
    """Train."""
    marks = common.start(folder)
    data = common.Samples()
    loader = DataLoader(data, batch_sampler=EpochBatches(len(data), common.BATCH))
    model = common.network()
    average = torch.optim.swa_utils.AveragedModel(
        model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9)
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.02, total_steps=EPOCHS * 2)
    loop = Loop(
        folder / "checkpoints",
        interval=common.interval(),
        model=model,
        average=average,
        optimizer=optimizer,
        scheduler=scheduler,
    )
    for epoch in loop.epochs(EPOCHS):
        total, count = 0.0, 0
        for number, batch in loop.enumerate(loader, accumulate=ACCUMULATE):
            loss = common.loss_of(model, batch) / ACCUMULATE
            loss.backward()
            if (number + 1) % ACCUMULATE == 0:
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
                average.update_parameters(model)
            total, count = total + loss.item(), count + 1
            marks.step(loop)
        sys.stdout.write(f"{epoch} mean loss {total / count} last {loss.item()}\n")  # of this process
        loop.state.setdefault("curve", []).append([epoch, common.validate(average, marks)])
    common.export(folder, marks, [model, average], loop.state["curve"])
