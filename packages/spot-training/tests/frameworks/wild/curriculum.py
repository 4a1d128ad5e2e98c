"""More samples in each epoch, a new loader for each, and validation that outlasts the notice."""

from __future__ import annotations

from pathlib import Path

import torch
from torch.utils.data import DataLoader

from frameworks.wild import common
from spot_training.torch import EpochBatches, Loop

EPOCHS = 4
VALIDATION_SECONDS = 4.0
"""Above the harness's grace."""


def main(folder: Path) -> None:
    """Train."""
    marks = common.start(folder)
    model = common.network()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 0.8**epoch)
    loop = Loop(
        folder / "checkpoints",
        interval=common.interval(),
        model=model,
        optimizer=optimizer,
        scheduler=scheduler,
    )
    for epoch in loop.epochs(EPOCHS):
        data = common.Samples(8 * (epoch + 1))
        loader = DataLoader(data, batch_sampler=EpochBatches(len(data), common.BATCH))
        for batch in loop.batches(loader):
            loss = common.loss_of(model, batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            marks.step(loop)
        scheduler.step()
        metric = common.validate(model, marks, VALIDATION_SECONDS if epoch == 2 else 0.0)
        loop.state.setdefault("curve", []).append([len(data), loss.item() * 0 + metric])
    common.export(folder, marks, [model], loop.state["curve"])
