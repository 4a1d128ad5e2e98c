"""Lightning Fabric: ``Loop`` with the objects that Fabric has set up."""

from __future__ import annotations

from pathlib import Path

import torch
from lightning.fabric import Fabric
from torch.utils.data import DataLoader

from frameworks.wild import common
from spot_training.torch import EpochBatches, Loop

EPOCHS = 4


def main(folder: Path) -> None:
    """Train."""
    marks = common.start(folder)
    fabric = Fabric(accelerator="cpu", devices=1, precision="bf16-mixed")
    model = common.network()
    model, optimizer = fabric.setup(model, torch.optim.Adam(model.parameters(), lr=0.01))
    data = common.Samples(noise=0.05)
    loader = DataLoader(data, batch_sampler=EpochBatches(len(data), common.BATCH), num_workers=1)
    loop = Loop(folder / "checkpoints", interval=common.interval(), model=model, optimizer=optimizer)
    for _ in loop.epochs(EPOCHS):
        marks.at("workers")
        for batch in loop.batches(loader):
            loss = common.loss_of(model, fabric.to_device(batch))
            optimizer.zero_grad()
            fabric.backward(loss)
            optimizer.step()
            loop.mean("loss", loss)
            marks.step(loop)
        loop.state.setdefault("curve", []).append([loop.mean("loss"), common.validate(model, marks)])
    common.export(folder, marks, [model], loop.state["curve"])
