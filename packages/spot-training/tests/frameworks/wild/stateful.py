"""torchdata's loader with workers that augment, means in local variables, a scheduler by epoch."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from torchdata.stateful_dataloader import StatefulDataLoader

from frameworks.wild import common
from spot_training.torch import Loop

EPOCHS = 4


def main(folder: Path) -> None:
    """Train."""
    marks = common.start(folder)
    data = common.Samples(noise=0.05)
    loader = StatefulDataLoader(data, batch_size=common.BATCH, shuffle=True, num_workers=2)
    model = common.network()
    optimizer = torch.optim.NAdam(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.7)
    loop = Loop(
        folder / "checkpoints",
        interval=common.interval(),
        model=model,
        optimizer=optimizer,
        scheduler=scheduler,
    )
    for epoch in loop.epochs(EPOCHS):
        total, count = 0.0, 0
        marks.at("workers")
        for batch in loop.batches(loader):
            loss = common.loss_of(model, batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total, count = total + loss.item(), count + 1
            marks.step(loop)
        sys.stdout.write(f"{epoch} mean loss {total / count}\n")  # of this process
        scheduler.step()
        loop.state.setdefault("curve", []).append(common.validate(model, marks))
    common.export(folder, marks, [model], loop.state["curve"])
