"""Early stopping with the best weights, kept by the script and exported in the end."""

from __future__ import annotations

from pathlib import Path

import torch
from torch.utils.data import DataLoader

from frameworks.wild import common
from spot_training.torch import EpochBatches, Loop

EPOCHS, BAD_EPOCHS = 40, 1


def main(folder: Path) -> None:
    """Train until the validation gets worse."""
    marks = common.start(folder)
    data = common.Samples(noise=0.02)
    loader = DataLoader(data, batch_sampler=EpochBatches(len(data), common.BATCH))
    model = common.network()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    loop = Loop(folder / "checkpoints", interval=common.interval(), model=model, optimizer=optimizer)
    for _ in loop.epochs(EPOCHS):
        for batch in loop.batches(loader):
            loss = common.loss_of(model, batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            marks.step(loop)
        metric = common.validate(model, marks)
        state = loop.state
        state.setdefault("curve", []).append(metric)
        if metric < state.get("best", float("inf")):
            state["best"], state["bad"] = metric, 0
            state["weights"] = {name: value.clone() for name, value in model.state_dict().items()}
        else:
            state["bad"] += 1
        if state["bad"] > BAD_EPOCHS:
            loop.stop()
    model.load_state_dict(loop.state["weights"])
    common.export(folder, marks, [model], loop.state["curve"])
