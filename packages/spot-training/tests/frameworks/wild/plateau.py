"""AMP, workers with shuffle and augmentation, a scheduler fed by the epoch's mean loss, the best metric."""

from __future__ import annotations

from pathlib import Path

import torch
from torch.utils.data import DataLoader

from frameworks.wild import common
from spot_training.torch import EpochBatches, Loop

EPOCHS = 4


def main(folder: Path) -> None:
    """Train."""
    marks = common.start(folder)
    data = common.Samples(noise=0.05)
    loader = DataLoader(data, batch_sampler=EpochBatches(len(data), common.BATCH), num_workers=2)
    model = common.network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, factor=0.5)
    scaler = torch.amp.GradScaler("cpu")
    loop = Loop(
        folder / "checkpoints",
        interval=common.interval(),
        model=model,
        optimizer=optimizer,
        scheduler=scheduler,
        scaler=scaler,
    )
    for epoch in loop.epochs(EPOCHS):
        marks.at("workers")
        for batch in loop.batches(loader):
            with torch.autocast("cpu"):
                loss = common.loss_of(model, batch)
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            loop.mean("loss", loss)
            marks.step(loop)
        scheduler.step(loop.mean("loss"))
        metric = common.validate(model, marks)
        loop.state["best"] = min(loop.state.get("best", metric), metric)
        loop.state.setdefault("curve", []).append([epoch, loop.mean("loss"), metric, loop.state["best"]])
    common.export(folder, marks, [model], loop.state["curve"])
