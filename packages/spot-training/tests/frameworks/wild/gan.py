"""Two networks with an optimizer each, noise from NumPy, the losses of all steps as a curve."""

from __future__ import annotations

from pathlib import Path

import numpy
import torch
from torch.utils.data import DataLoader

from frameworks.wild import common
from spot_training.torch import EpochBatches, Loop

EPOCHS = 4


def main(folder: Path) -> None:
    """Train."""
    marks = common.start(folder)
    data = common.Samples()
    batches = EpochBatches(len(data), common.BATCH)
    loader = DataLoader(data, batch_sampler=batches, num_workers=1, persistent_workers=True)
    generator = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.ReLU(), torch.nn.Linear(16, 8))
    critic = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Dropout(0.1), torch.nn.Linear(16, 1))
    makes = torch.optim.Adam(generator.parameters(), lr=0.01)
    judges = torch.optim.RMSprop(critic.parameters(), lr=0.01)
    loop = Loop(
        folder / "checkpoints",
        interval=common.interval(),
        generator=generator,
        critic=critic,
        makes=makes,
        judges=judges,
    )
    binary = torch.nn.functional.binary_cross_entropy_with_logits
    for _ in loop.epochs(EPOCHS):
        marks.at("workers")
        for _, real, _ in loop.batches(loader):
            noise = torch.from_numpy(numpy.random.normal(size=(len(real), 4)).astype("float32"))
            fake = generator(noise)
            loss = binary(critic(real), torch.ones(len(real), 1))
            loss = loss + binary(critic(fake.detach()), torch.zeros(len(real), 1))
            judges.zero_grad()
            loss.backward()
            judges.step()
            wins = binary(critic(fake), torch.ones(len(real), 1))
            makes.zero_grad()
            wins.backward()
            makes.step()
            loop.state.setdefault("curve", []).append(numpy.float64(loss.item() + wins.item()))
            marks.step(loop)
        marks.at("validation")
    common.export(folder, marks, [generator, critic], [float(value) for value in loop.state["curve"]])
