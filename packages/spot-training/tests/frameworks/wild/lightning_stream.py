"""Lightning: a stream without a state or a length, shuffled in a buffer, augmented in two workers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lightning
import torch
from torch.utils.data import DataLoader

from frameworks.wild import common, lightning_common, stream
from spot_training.lightning import SpotCheckpoint

REPEATED = 1


class Points(lightning_common.Curve, lightning.Callback):
    """The curve."""


class Model(lightning.LightningModule):
    """A network with batch statistics and dropout; checks the samples of each epoch."""

    def __init__(self, marks: common.Marks, length: int) -> None:
        super().__init__()
        self._marks, self._length = marks, length
        self.network = common.network()
        self.ids: list[int] = []
        self.orders: list[list[int]] = []

    def on_train_epoch_start(self) -> None:
        self._marks.at("workers")

    def training_step(self, batch: Any, index: int) -> torch.Tensor:
        loss = common.loss_of(self.network, batch)
        self.ids += batch[0].tolist()
        self.log("loss", loss, on_step=False, on_epoch=True, sync_dist=common.ranks() > 1)
        return loss

    def validation_step(self, batch: Any, index: int) -> None:
        lightning_common.wait(0.02)
        self.log("validation", common.loss_of(self.network, batch), sync_dist=common.ranks() > 1)

    def on_train_epoch_end(self) -> None:
        order = stream.everywhere(self.ids)
        if sorted(order) != list(range(self._length)):
            raise SystemExit(f"samples of an epoch: {sorted(order)}")
        self.orders.append(order)
        self.ids = []

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.02, momentum=0.9)


def train(folder: Path, loader: Any, length: int, **options: Any) -> None:
    """Train."""
    marks = common.start(folder)
    validation = DataLoader(common.Samples(8, begin=common.LENGTH), 8)
    model, curve = Model(marks, length), Points(marks)
    spot = SpotCheckpoint(folder / "checkpoints", interval=common.interval())
    trainer = lightning.Trainer(
        **lightning_common.quiet(folder),
        max_epochs=stream.EPOCHS,
        logger=False,
        enable_checkpointing=False,
        callbacks=[curve, spot],
        **options,
    )
    trainer.fit(model, loader, validation, ckpt_path=spot.resume_from(model))
    common.export(folder, marks, [model], [curve.points, model.orders])


def main(folder: Path) -> None:
    """Train."""
    train(folder, DataLoader(stream.Stream(), batch_size=common.BATCH, num_workers=2), stream.LENGTH)
