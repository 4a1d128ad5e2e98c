"""Lightning: shuffle, augmentation in workers, a scheduler fed by an epoch's mean, slow validation, CSV."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lightning
import torch
from lightning.pytorch.callbacks import LearningRateMonitor
from lightning.pytorch.loggers import CSVLogger
from torch.utils.data import DataLoader

from frameworks.wild import common, lightning_common
from spot_training.lightning import SpotCheckpoint

EPOCHS = 4
REPEATED = 1
VALIDATION_SECONDS = 3.3
"""Of the last epoch, above the harness's grace."""


class Points(lightning_common.Curve, lightning.Callback):
    """The curve, without a state of its own."""


class Model(lightning.LightningModule):
    """A network with batch statistics and dropout."""

    def __init__(self, marks: common.Marks) -> None:
        super().__init__()
        self._marks = marks
        self.network = common.network()
        self.losses: list[float] = []

    def on_train_epoch_start(self) -> None:
        self._marks.at("workers")
        self.losses = []

    def training_step(self, batch: Any, index: int) -> torch.Tensor:
        loss = common.loss_of(self.network, batch)
        self.losses.append(float(loss))
        self.log("loss", loss, on_step=True, on_epoch=True)
        return loss

    def validation_step(self, batch: Any, index: int) -> None:
        lightning_common.wait(VALIDATION_SECONDS if self.current_epoch == EPOCHS - 1 else 0.02)
        self.log("validation", common.loss_of(self.network, batch))

    def on_train_epoch_end(self) -> None:
        self.log("sum", torch.tensor(sum(self.losses)))

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), lr=0.05, momentum=0.9)
        scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, factor=0.5)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "monitor": "loss_epoch"}}


def main(folder: Path) -> None:
    """Train."""
    marks = common.start(folder)
    loader = DataLoader(common.Samples(noise=0.05), common.BATCH, shuffle=True, num_workers=2)
    validation = DataLoader(common.Samples(8, begin=common.LENGTH), 8)
    model = Model(marks)
    curve = Points(marks)
    spot = SpotCheckpoint(folder / "checkpoints", interval=common.interval())
    logger = CSVLogger(folder, flush_logs_every_n_steps=1)
    trainer = lightning.Trainer(
        **lightning_common.quiet(folder),
        max_epochs=EPOCHS,
        log_every_n_steps=1,
        logger=logger,
        enable_checkpointing=False,
        callbacks=[curve, LearningRateMonitor(logging_interval="step"), spot],
    )
    trainer.fit(model, loader, validation, ckpt_path=spot.resume_from(model))
    rows = lightning_common.rows(folder / "lightning_logs")
    common.export(folder, marks, [model], [curve.points, rows])
