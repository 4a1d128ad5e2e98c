"""Pre-training, then two folds from its weights: three trainings in one script."""

from __future__ import annotations

from pathlib import Path

import torch
from torch.utils.data import DataLoader

from frameworks.wild import common
from spot_training.torch import EpochBatches, Loop


def train(folder: Path, marks: common.Marks, name: str, model: torch.nn.Module, begin: int) -> list[float]:
    """Train one of them; return its curve."""
    data = common.Samples(16, begin=begin)
    loader = DataLoader(data, batch_sampler=EpochBatches(len(data), common.BATCH))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    checkpoints = folder / "checkpoints"
    loop = Loop(checkpoints, name=name, interval=common.interval(), model=model, optimizer=optimizer)
    for _ in loop.epochs(3):
        for batch in loop.batches(loader):
            loss = common.loss_of(model, batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            loop.mean("loss", loss)
            marks.step(loop)
        loop.state.setdefault("curve", []).append([loop.mean("loss"), common.validate(model, marks)])
    curve: list[float] = loop.state["curve"]
    return curve


def main(folder: Path) -> None:
    """Train all three."""
    marks = common.start(folder)
    base = common.network()
    curves, models = [train(folder, marks, "base", base, 0)], [base]
    for fold in range(2):
        torch.manual_seed(fold)
        model = common.network()
        model.load_state_dict(base.state_dict())
        curves.append(train(folder, marks, f"fold-{fold}", model, 8 * fold))
        models.append(model)
    common.export(folder, marks, models, curves)
