"""Lightning: two networks, manual optimization, weighted samples, validations within an epoch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lightning
import numpy
import torch
from torch.utils.data import DataLoader, WeightedRandomSampler

from frameworks.wild import common, lightning_common
from spot_training.lightning import SpotCheckpoint

STEPS = 26
REPEATED = 1


class Points(lightning_common.Curve, lightning.Callback):
    """The curve, without a state of its own."""


class Model(lightning.LightningModule):
    """A generator and a critic."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.generator = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.ReLU(), torch.nn.Linear(16, 8))
        self.critic = torch.nn.Sequential(
            torch.nn.Linear(8, 16), torch.nn.Dropout(0.1), torch.nn.Linear(16, 1)
        )
        self.average = torch.zeros(())

    def training_step(self, batch: Any, index: int) -> None:
        makes, judges = self.optimizers()
        real = batch[1]
        binary = torch.nn.functional.binary_cross_entropy_with_logits
        fake = self.generator(torch.from_numpy(numpy.random.normal(size=(len(real), 4)).astype("float32")))
        loss = binary(self.critic(real), torch.ones(len(real), 1))
        loss = loss + binary(self.critic(fake.detach()), torch.zeros(len(real), 1))
        judges.zero_grad()
        self.manual_backward(loss)
        judges.step()
        wins = binary(self.critic(fake), torch.ones(len(real), 1))
        makes.zero_grad()
        self.manual_backward(wins)
        makes.step()
        self.average = 0.9 * self.average + 0.1 * wins.detach()
        self.log_dict({"loss": loss, "wins": wins}, on_epoch=True, on_step=False)

    def validation_step(self, batch: Any, index: int) -> None:
        lightning_common.wait(0.02)
        self.log("validation", self.critic(batch[1]).mean() + self.average)

    def configure_optimizers(self) -> Any:
        return [
            torch.optim.Adam(self.generator.parameters(), lr=0.01),
            torch.optim.RMSprop(self.critic.parameters(), lr=0.01),
        ]


def main(folder: Path) -> None:
    """Train."""
    marks = common.start(folder)
    weights = [1.0 + index % 3 for index in range(common.LENGTH)]
    sampler = WeightedRandomSampler(weights, common.LENGTH, generator=torch.Generator().manual_seed(5))
    loader = DataLoader(common.Samples(noise=0.05), common.BATCH, sampler=sampler)
    validation = DataLoader(common.Samples(8, begin=common.LENGTH), 8)
    model = Model()
    curve = Points(marks)
    spot = SpotCheckpoint(folder / "checkpoints", interval=common.interval())
    trainer = lightning.Trainer(
        **lightning_common.quiet(folder),
        max_steps=2 * STEPS,
        val_check_interval=2,
        logger=False,
        enable_checkpointing=False,
        callbacks=[spot, curve],
    )
    trainer.fit(model, loader, validation, ckpt_path=spot.resume_from(model))
    common.export(folder, marks, [model], [curve.points, float(model.average)])
